import { profiles } from '../../../../src/egress/profiles/index.ts'

const { smtp: _, gmail: __, postgres: ___, ...others } = profiles

/** Every profile but those that read no HTTP. */
export const HTTP_PROFILES = others
