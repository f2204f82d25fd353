import { writeFileSync } from 'node:fs'
import { aclTemplate } from '../../src/acl/acl-line.ts'
import { ROLES } from '../../src/acl/roles.ts'

/** Writes docs/acl/<role>.acl anew: `npm run acl`, after a change of Lua or of BullMQ. */
for (const role of ROLES) {
  const file = new URL(`../../docs/acl/${role}.acl`, import.meta.url)
  writeFileSync(file, `${aclTemplate(role)}\n`)
}
