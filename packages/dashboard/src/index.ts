// dashboard/: the server of the pages in web/: what they read, change and receive. It must not know the command line or
// its output.

export { dashboard } from './dashboard.ts'
export type { DashboardOptions } from './options.ts'
export { SECURITY_HEADERS } from './security-headers.ts'
