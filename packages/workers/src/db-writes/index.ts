export { databaseWritesProgram } from './program.ts'
export { bindStatement, type DatabaseWrite, parseStatements, type StatementCatalog } from './statements.ts'
