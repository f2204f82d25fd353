import type { ClientBase, QueryConfig, QueryResult } from 'pg'

// The driver supports it, but its types do not have it yet.
interface ExtendedQuery extends QueryConfig {
  queryMode: 'extended'
}

/**
 * Sends one statement by the extended protocol, in which PostgreSQL refuses a text that holds several. The simple
 * protocol, which the driver uses when there are no values, would run them one after the other.
 */
export function querySingle(client: ClientBase, text: string, values: readonly unknown[] = []): Promise<QueryResult> {
  const query: ExtendedQuery = { text, values: [...values], queryMode: 'extended' }
  return client.query(query)
}
