import type { ClientBase, QueryConfig, QueryResult } from 'pg'

// Known to the driver, not yet to its types.
interface ExtendedQuery extends QueryConfig {
  queryMode: 'extended'
}

/**
 * Sends one statement by the extended protocol. PostgreSQL refuses a text that holds several, which the simple protocol
 * (the driver's choice when there are no values) would run one after the other.
 */
export function querySingle(client: ClientBase, text: string, values: readonly unknown[] = []): Promise<QueryResult> {
  const query: ExtendedQuery = { text, values: [...values], queryMode: 'extended' }
  return client.query(query)
}
