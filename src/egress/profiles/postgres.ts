import { sqlDialect } from '../dialects/sql.ts'
import { Gradient2Limit } from '../gradient.ts'
import { createProfile } from './profile.ts'

/**
 * PostgreSQL. The shape is the maximum that a server with default settings accepts: 100 connections, 3 of them kept for
 * superusers. If other programs use the database too, take less.
 */
export const postgres = createProfile({
  name: 'postgres',
  dialect: sqlDialect,
  rules: [],
  concurrencyLimit: (most) => new Gradient2Limit({ initial: most, max: most }),
  shape: { concurrency: 97 },
  read: { on: '2026-11-22', at: 'https://www.postgresql.org/docs/current/runtime-config-connection.html' },
})
