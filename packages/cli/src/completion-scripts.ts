import { Argument, type Command, type Option } from 'commander'

export const SHELLS = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof SHELLS)[number]

/** @param loadAll builds the program with every command */
export function addCompletionCommand(program: Command, loadAll: () => Promise<Command>): void {
  program
    .command('completion')
    .summary('completions for bash, zsh and fish')
    .description('Prints the completions of a shell, generated from its commands.')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .addHelpText('after', EXAMPLES)
    .action(async (shell: Shell) => {
      process.stdout.write(`${completionScript(shell, placesOf(await loadAll()))}\n`)
    })
}

const EXAMPLES = `
Examples:
  $ eval "$(sluice completion bash)"
  $ sluice completion zsh > "\${fpath[1]}/_sluice"
  $ sluice completion fish > ~/.config/fish/completions/sluice.fish
`

/** The script that completes the command in a shell. It lists the commands and options known when it was generated. */
export function completionScript(shell: Shell, places: readonly Place[]): string {
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](places)
}

/** Options whose value is the next word. An option that takes a file in one command may take other text in another. */
function optionsThatTake(places: readonly Place[], ...values: readonly string[]): string[] {
  const names = places.flatMap(({ options }) => options.filter(({ takes }) => values.includes(takes)))
  return [...new Set(names.map(({ word }) => word))].sort()
}

/** Options after which the next word is not a command. */
function valueOptions(places: readonly Place[]): string[] {
  return optionsThatTake(places, 'text', 'file')
}

function fileOptions(places: readonly Place[]): string[] {
  return optionsThatTake(places, 'file')
}

function paths(places: readonly Place[]): string[] {
  return places.map(({ path }) => path).filter((path) => path !== '')
}

function bashScript(places: readonly Place[]): string {
  const words = ({ commands, options }: Place) => [...commands, ...options].map(({ word }) => word).join(' ')
  return `# bash completion for sluice: eval "$(sluice completion bash)"
_sluice() {
  local at='' word words i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    case "$word" in ${valueOptions(places).join('|')}) ((i++)); continue ;; esac
    case "\${at:+$at }$word" in ${paths(places).map(quoted).join('|')}) at="\${at:+$at }$word" ;; esac
  done
  word=\${COMP_WORDS[COMP_CWORD]}
  case "\${COMP_WORDS[COMP_CWORD-1]}" in
    ${fileOptions(places).join('|')}) COMPREPLY=($(compgen -f -- "$word")); return ;;
    ${valueOptions(places).join('|')}) COMPREPLY=(); return ;;
  esac
  case "$at" in
${places.map((place) => `    ${quoted(place.path)}) words=${quoted(words(place))} ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _sluice sluice`
}

function zshScript(places: readonly Place[]): string {
  const described = ({ word, description }: Candidate) => quoted(`${word}:${description}`)
  const candidates = ({ commands, options }: Place) => [...commands, ...options].map(described).join(' ')
  return `#compdef sluice
# zsh completion for sluice: sluice completion zsh > "\${fpath[1]}/_sluice"
_sluice() {
  local at='' word i
  local -a candidates
  for ((i = 2; i < CURRENT; i++)); do
    word=$words[i]
    case "$word" in ${valueOptions(places).join('|')}) ((i++)); continue ;; esac
    case "\${at:+$at }$word" in ${paths(places).map(quoted).join('|')}) at="\${at:+$at }$word" ;; esac
  done
  case "$words[CURRENT-1]" in
    ${fileOptions(places).join('|')}) _files; return ;;
    ${valueOptions(places).join('|')}) return ;;
  esac
  case "$at" in
${places.map((place) => `    ${quoted(place.path)}) candidates=(${candidates(place)}) ;;`).join('\n')}
  esac
  _describe 'sluice' candidates
}
if [ "$funcstack[1]" = '_sluice' ]; then _sluice "$@"; else compdef _sluice sluice; fi`
}

function fishScript(places: readonly Place[]): string {
  const lines = places.flatMap(({ path, commands, options }) => {
    const here = `complete -c sluice -n ${fishQuoted(`__sluice_at ${fishQuoted(path)}`)}`
    const described = ({ description }: Candidate) => (description === '' ? '' : ` -d ${fishQuoted(description)}`)
    return [
      ...commands.map((command) => `${here} -a ${command.word}${described(command)}`),
      ...options.map((option) => {
        const value = { nothing: '', text: ' -x', file: ' -r -F' }[option.takes]
        return `${here} -l ${option.word.slice(2)}${value}${described(option)}`
      }),
    ]
  })
  return `# fish completion for sluice: sluice completion fish > ~/.config/fish/completions/sluice.fish
function __sluice_at --argument-names wanted
    set -l at
    set -l words (commandline -opc)
    set -l skip yes
    for word in $words
        if test $skip = yes
            set skip no
            continue
        end
        set -l next (string join ' ' -- $at $word)
        switch $word
            case ${valueOptions(places).join(' ')}
                set skip yes
                continue
        end
        switch "$next"
            case ${paths(places).map(fishQuoted).join(' ')}
                set at $at $word
        end
    end
    test "$at" = "$wanted"
end
complete -c sluice -f
${lines.join('\n')}`
}

/** For POSIX-like shells. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', String.raw`\\`).replaceAll("'", String.raw`\'`)}'`
}

/** A word that may come next. */
interface Candidate {
  readonly word: string
  /** One sentence without its full stop. */
  readonly description: string
}

/** A position in a command line, and the words that may follow. */
interface Place {
  /** The commands so far, such as `shape set`; empty for the program itself. */
  readonly path: string
  readonly commands: readonly Candidate[]
  readonly options: readonly (Candidate & { readonly takes: 'nothing' | 'text' | 'file' })[]
}

/** Every place of a program, starting with the program itself. */
export function placesOf(program: Command): Place[] {
  return placesUnder(program, [])
}

function placesUnder(command: Command, path: readonly string[]): Place[] {
  const help = command.createHelp()
  help.showGlobalOptions = true
  const commands = help.visibleCommands(command)
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)]
  const place: Place = {
    path: path.join(' '),
    commands: commands.map((one) => ({ word: one.name(), description: help.subcommandDescription(one) })).map(brief),
    options: options.flatMap((option) => {
      const { long, description } = option
      return long ? [{ ...brief({ word: long, description }), takes: valueTakenBy(option) }] : []
    }),
  }
  // `help`, which commander adds by itself, has no options of its own.
  const own = commands.filter((one) => command.commands.includes(one))
  return [place, ...own.flatMap((one) => placesUnder(one, [...path, one.name()]))]
}

function valueTakenBy({ required, optional, flags }: Option): 'nothing' | 'text' | 'file' {
  if (!required && !optional) return 'nothing'
  return /[<[](file|folder)[>\]]/.test(flags) ? 'file' : 'text'
}

function brief({ word, description }: Candidate): Candidate {
  const [sentence = ''] = description.split(/[.:;](?:\s|$)| \(/)
  return { word, description: sentence.replaceAll(/\s+/g, ' ') }
}
