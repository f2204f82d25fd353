import type { Command, Option } from 'commander'

/** A word that may come next. */
export interface Candidate {
  readonly word: string
  /** One sentence without its full stop. */
  readonly description: string
}

/** A position in a command line, and the words that may follow. */
export interface Place {
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
