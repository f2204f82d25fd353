import { writeFileSync } from 'node:fs'
import { aclTemplate, roleCommands } from './acl-line.ts'
import { ROLES } from './roles.ts'

// Writes what is found in the scripts: `npm run acl`, after a change of Lua or of BullMQ.
for (const role of ROLES) {
  const file = new URL(`../../docs/acl/${role}.acl`, import.meta.url)
  writeFileSync(file, `${aclTemplate(role)}\n`)
}
writeFileSync(new URL('../../src/redis/role-commands.ts', import.meta.url), roleCommands())
