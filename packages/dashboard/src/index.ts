export { dashboard } from './dashboard.ts'
export type { DashboardOptions } from './options.ts'
export { SECURITY_HEADERS } from './security-headers.ts'
