// What the dashboard needs of the gateway and its users do not. Nothing of it loads BullMQ.

export { fastifyMiddleware, sendResponse } from './adapters/fastify.ts'
export { onlyFrom } from './auth/only-from.ts'
export { tokenHash } from './auth/token-entry.ts'
export { isWorldReadable } from './auth/token-file.ts'
export { TokenStore } from './auth/tokens.ts'
export { answerClientError } from './program/client-errors.ts'
export { Connections } from './program/connections.ts'
export { checkExposure, gatewayTable } from './program/settings.ts'
export { ProblemError, problemResponse } from './responses/problem.ts'
