import type { ClientBase } from 'pg'
import { StartError } from '../errors.ts'
import { querySingle } from './single-statement.ts'
import type { StatementCatalog } from './statements.ts'

/**
 * Has PostgreSQL parse every statement without running it, so that a misspelt table stops the start and does not fail
 * every job for good.
 *
 * @throws StartError naming the first statement that PostgreSQL does not accept.
 */
export async function checkStatements(client: ClientBase, statements: StatementCatalog): Promise<void> {
  for (const [name, { sql, batchSql }] of statements) {
    for (const text of batchSql === undefined ? [sql] : [sql, batchSql]) {
      try {
        await querySingle(client, `prepare sluice_check as ${text}`)
      } catch (error) {
        throw new StartError(`statement "${name}" is not accepted by PostgreSQL`, error)
      }
      await client.query('deallocate sluice_check')
    }
  }
}
