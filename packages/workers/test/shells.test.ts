import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { delimiter } from 'node:path'
import { describe, expect, test } from 'vitest'
import { documents } from '../../../test/package/code-blocks.ts'
import { fakeProgram, temporaryFolder } from '../../../test/support/temporary-folder.ts'
import { gatewayTable } from '../../gateway/src/program/settings.ts'
import { readSettings, type SettingTable } from '../../programs/src/settings.ts'
import { databaseWritesProgram } from '../src/db-writes/program.ts'
import { emailProgram } from '../src/email/program.ts'
import { httpProgram } from '../src/http/program.ts'

const PROGRAMS: Readonly<Record<string, SettingTable>> = {
  'worker email': emailProgram.settings,
  'worker db-writes': databaseWritesProgram.settings,
  'worker http': httpProgram.settings,
  gateway: gatewayTable,
}
/** What the command line and the tools around the programs read. */
const OTHERS = ['REDIS_READ_URL', 'REDIS_CLUSTER']
const NAMES = [...new Set([...Object.values(PROGRAMS).flatMap(variablesOf), ...OTHERS])]

/**
 * Variables to which a shell gives a meaning or a value of its own: an assignment is ignored, refused, changed, or
 * changes the shell. In capitals, since csh, fish and zsh tie `path` to `PATH`. `HOST` is not among them: zsh and tcsh
 * set it for themselves, and pass on what a command line assigns.
 */
const SPECIAL: Readonly<Record<string, string>> = {
  posix: `CDPATH ENV FC_EDIT HISTFILE HISTORY HISTSIZE HOME IFS LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC
    LC_TIME LINENO LOGNAME MAIL MAILCHECK MAILPATH NLSPATH OLDPWD OPTARG OPTERR OPTIND PATH PPID PS1 PS2 PS3 PS4 PWD
    SHELL TERM TMPDIR TZ USER VISUAL EDITOR`,
  bash: `AUTO_RESUME BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT
    BASH_ENV BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE
    BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD CHILD_MAX COLUMNS COMP_CWORD COMP_KEY COMP_LINE
    COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COMPREPLY COPROC DIRSTACK EMACS EPOCHREALTIME EPOCHSECONDS EUID
    EXECIGNORE FCEDIT FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCHARS HISTCMD HISTCONTROL HISTFILESIZE
    HISTIGNORE HISTTIMEFORMAT HOSTFILE HOSTNAME HOSTTYPE IGNOREEOF INPUTRC INSIDE_EMACS LINES MACHTYPE MAPFILE OSTYPE
    PIPESTATUS POSIXLY_CORRECT PROMPT_COMMAND PROMPT_DIRTRIM PS0 RANDOM READLINE_ARGUMENT READLINE_LINE READLINE_MARK
    READLINE_POINT REPLY SECONDS SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT UID`,
  zsh: `ARGC ARGV ARGV0 BAUD CPUTYPE CORRECT_IGNORE DIRSTACKSIZE EGID ERRNO FPATH FIGNORE FUNCTION_ARGZERO GID HISTNO
    KEYBOARD_HACK KEYTIMEOUT LISTMAX LOGCHECK MANPATH MATCH MBEGIN MEND MODULE_PATH NULLCMD OPTIONS PARAMETERS POSTEDIT
    PROMPT PROMPT2 PROMPT3 PROMPT4 PROMPT_EOL_MARK PSVAR READNULLCMD RPROMPT RPS1 SAVEHIST SIGNALS SPROMPT STATUS STTY
    TERMINFO TIMEFMT TMPPREFIX TMPSUFFIX TRY_BLOCK_ERROR TTY TTYIDLE USERNAME VENDOR WATCH WATCHFMT WORDCHARS ZBEEP
    ZDOTDIR ZLE_LINE_ABORTED ZSH_ARGZERO ZSH_EVAL_CONTEXT ZSH_NAME ZSH_PATCHLEVEL ZSH_SCRIPT ZSH_SUBSHELL ZSH_VERSION
    ALIASES BUILTINS COMMANDS FUNCTIONS HISTCHARS HISTORY HISTORYWORDS JOBDIRS JOBSTATES JOBTEXTS MODULES NAMEDDIRS`,
  fish: `BG CMD_DURATION FISH_PID GENERATION HISTORY HOSTNAME IFS KILL_SIGNAL LAST_PID PIPESTATUS STATUS UMASK VERSION`,
  csh: `CWD ECHO GROUP HISTORY HOME MAIL NOCLOBBER NOGLOB PATH PROMPT SHELL STATUS TERM TIME TTY USER VERBOSE`,
}
const SHELLS = ['sh', 'bash', 'dash', 'zsh', 'fish', 'ksh'].filter(
  (shell) => spawnSync(shell, ['-c', ':']).status === 0,
)

function variablesOf(table: SettingTable): string[] {
  return Object.values(table).map(({ variable }) => variable)
}

test.each(Object.entries(SPECIAL))('no setting has a name that is special in %s', (_shell, names) => {
  expect(NAMES.length).toBeGreaterThan(40)
  expect(NAMES.filter((name) => names.split(/\s+/).includes(name))).toEqual([])
})

test.each(SHELLS)('%s hands every setting to the program that it starts', (shell) => {
  const environmentOf = (names: readonly string[]) => {
    const line = `${names.map((name) => `${name}='given to ${name}'`).join(' ')} ${process.execPath} -p 'JSON.stringify(process.env)'`
    return JSON.parse(spawnSync(shell, ['-c', line], { encoding: 'utf8' }).stdout) as NodeJS.ProcessEnv
  }
  const lost = (names: readonly string[]) => {
    const found = environmentOf(names)
    return names.filter((name) => found[name] !== `given to ${name}`)
  }
  expect(lost(NAMES)).toEqual([])
  if (shell === 'bash') expect(lost([...NAMES, 'GROUPS'])).toEqual(['GROUPS'])
})

describe('command lines of the documents, through bash', () => {
  /** What the lines leave out, and files of the repository in place of those of a reader. */
  const given = { REDIS_URL: 'redis://localhost', RATE: '50/s', SMTP_URL: 'smtp://localhost', TARGETS: '' }
  const files = {
    CONFIG: 'examples/gateway.config.json',
    STATEMENTS: 'examples/db-writes.config.json',
    TARGETS: 'examples/http.config.json',
  }
  const lines = documents().flatMap((document) => {
    const found = readFileSync(document, 'utf8').matchAll(
      /((?:\b[A-Z_]+=(?:'[^']*'|\S+) +)+)npx sluice-cli (gateway|worker [\w-]+)/g,
    )
    return [...found].map(([, assignments = '', program = '']) => ({ assignments, program }))
  })

  test('are found', () => expect(lines.length).toBeGreaterThan(2))

  test.each(lines)('$assignments npx sluice-cli $program', ({ assignments, program }) => {
    const folder = temporaryFolder()
    fakeProgram(folder, 'npx', `exec ${process.execPath} -p 'JSON.stringify(process.env)'`)
    const { stdout } = spawnSync('bash', ['-c', `${assignments} npx sluice-cli ${program}`], {
      encoding: 'utf8',
      env: { ...process.env, ...given, PATH: `${folder}${delimiter}${process.env.PATH}` },
    })
    const env = JSON.parse(stdout) as NodeJS.ProcessEnv
    const assigned = [...assignments.matchAll(/([A-Z_]+)=(?:'([^']*)'|(\S+))/g)]
    for (const [, name = '', quoted, plain] of assigned) expect(env[name], name).toBe(quoted ?? plain)
    const placed = Object.entries(files).filter(([name]) => env[name])
    readSettings(PROGRAMS[program] as SettingTable, { ...env, ...Object.fromEntries(placed) })
  })
})
