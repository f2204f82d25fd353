// Plain JavaScript that imports only Node's modules: it has to run before anything is installed.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const projectRoot = dirname(dirname(fileURLToPath(import.meta.url)))

/** Thrown when npm could not install the dependencies; `exitCode` is npm's. */
export class InstallError extends Error {
  name = 'InstallError'
  /**
   * @param {string} message
   * @param {number} exitCode
   */
  constructor(message, exitCode) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * Whether node_modules is missing or older than package-lock.json. A fresh check-out can give an unchanged lock file a
 * newer time, so times alone do not decide: npm's own record is compared with it.
 * @param {string} root the folder of package.json
 */
export function dependenciesAreStale(root) {
  const lockFile = join(root, 'package-lock.json')
  const installed = join(root, 'node_modules', '.package-lock.json')
  if (!existsSync(installed)) return true
  if (!existsSync(lockFile)) return false
  return statSync(installed).mtimeMs < statSync(lockFile).mtimeMs && !recordsAgree(lockFile, installed)
}

/**
 * @param {string} lockFile
 * @param {string} installed
 */
function recordsAgree(lockFile, installed) {
  const wanted = JSON.parse(readFileSync(lockFile, 'utf8')).packages
  const present = JSON.parse(readFileSync(installed, 'utf8')).packages
  return Object.entries(wanted).every(([path, { version, optional, peer }]) => {
    if (path === '') return true
    const found = present[path]
    return found ? found.version === version : Boolean(optional || peer)
  })
}

/**
 * Installs the dependencies with `npm ci` when they are missing or older than package-lock.json, and prints a line
 * about it. If that fails, exits with npm's exit code and a message.
 */
export function ensureDependencies(root = projectRoot) {
  if (!dependenciesAreStale(root)) return
  try {
    install(root)
  } catch (error) {
    if (!(error instanceof InstallError)) throw error
    process.stderr.write(`${error.message}\n`)
    process.exit(error.exitCode)
  }
}

/** @param {string} root */
function install(root) {
  const command = existsSync(join(root, 'package-lock.json')) ? 'ci' : 'install'
  process.stdout.write(`Installing dependencies: npm ${command}\n`)
  // npm sets npm_execpath when it runs a script; elsewhere the shell finds npm (npm.cmd on Windows).
  const npmScript = process.env.npm_execpath
  const args = [command, '--no-audit', '--no-fund', '--include=dev', '--loglevel=error']
  const ended = npmScript?.endsWith('npm-cli.js')
    ? spawnSync(process.execPath, [npmScript, ...args], { cwd: root, stdio: 'inherit' })
    : spawnSync('npm', args, { cwd: root, stdio: 'inherit', shell: process.platform === 'win32' })
  if (ended.status === 0) return
  const how = ended.error?.message ?? (ended.signal ? `it was ended by ${ended.signal}` : `exit code ${ended.status}`)
  throw new InstallError(
    `The dependencies could not be installed: npm ${command} failed (${how}). Run it in ${root} to see why.`,
    ended.status || 1,
  )
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) ensureDependencies()
