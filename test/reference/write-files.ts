import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../package/code-blocks.ts'
import { filledDocuments } from './blocks.ts'
import { commandsPage } from './commands.ts'

/** Writes the tables and the page that documents have from the code: `npm run reference`. */
for (const { file, filled } of filledDocuments()) writeFileSync(file, filled)
writeFileSync(join(ROOT, 'docs', 'commands.md'), await commandsPage())
