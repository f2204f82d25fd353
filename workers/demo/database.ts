import { Client } from 'pg'
import type { Arrival } from './report.ts'

/** The rows that the receiving database holds, read independently of the workers that wrote them. */
export interface ReceivingDatabase {
  readonly url: string
  /** The table the workers keep their ledger in. */
  readonly ledgerTable: string
  /** How many effects the ledger holds. */
  count(): Promise<number>
  /** Every effect, with the time on the database's clock at which it was written. */
  arrivals(): Promise<Arrival[]>
  /** Rows in the target tables; as many as effects when every write took place exactly once. */
  rows(): Promise<number>
  /** Drops the database and closes the connection. */
  drop(): Promise<void>
}

const ledgerTable = 'sluice_ledger'

const tables = `
  create table orders (
    order_number text not null, customer text not null, email text not null,
    total_cents bigint not null, placed_at timestamptz not null, items jsonb not null);
  create table events (name text not null, details jsonb not null);
  create table audit (actor text not null, action text not null, note text);`

/** Reads the ledger and the tables, over a connection to the database. */
function readingFrom(client: Client): Pick<ReceivingDatabase, 'count' | 'arrivals' | 'rows'> {
  const numberOf = async (sql: string): Promise<number> => (await client.query<{ n: number }>(sql)).rows[0]?.n ?? 0
  return {
    count: async () => {
      // The first worker creates the ledger.
      const ledgers = await numberOf(`select count(to_regclass('${ledgerTable}'))::int as n`)
      return ledgers === 0 ? 0 : numberOf(`select count(*)::int as n from ${ledgerTable}`)
    },
    arrivals: async () => {
      const { rows } = await client.query<{ effect_id: string; at_us: string }>(
        `select effect_id, (extract(epoch from applied_at) * 1000000)::bigint as at_us from ${ledgerTable}`,
      )
      return rows.map((row) => ({ effectId: row.effect_id, atUs: Number(row.at_us), taken: true }))
    },
    rows: () =>
      numberOf(
        'select ((select count(*) from orders) + (select count(*) from events) + (select count(*) from audit))::int as n',
      ),
  }
}

/** Creates a database of its own, `name`, with the tables of the demonstration, on the server at `serverUrl`. */
export async function createReceivingDatabase(serverUrl: string, name: string): Promise<ReceivingDatabase> {
  const admin = new Client({ connectionString: serverUrl })
  await admin.connect()
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  const client = new Client({ connectionString: url.href })
  // The next query reports a lost server; without a listener, the process would exit at once.
  for (const connection of [admin, client]) connection.on('error', () => {})
  try {
    await admin.query(`create database "${name}"`)
    await client.connect()
    await client.query(tables)
  } catch (error) {
    await Promise.allSettled([client.end(), admin.end()])
    throw error
  }
  const drop = async (): Promise<void> => {
    await client.end()
    await admin.query(`drop database if exists "${name}" with (force)`)
    await admin.end()
  }
  return { url: url.href, ledgerTable, ...readingFrom(client), drop }
}
