export { type Mail, readMessage } from './message.ts'
export { emailProgram } from './program.ts'
