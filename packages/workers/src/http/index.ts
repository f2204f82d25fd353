export { httpProgram } from './program.ts'
