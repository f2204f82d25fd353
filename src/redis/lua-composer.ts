/**
 * `--- @include "file"`, in a function with `here`; `--- @original`, of one script by name, whole or in part; a part with
 * `handled` calls the handler of each command by its name.
 */
const MARK =
  /^[ \t]*--- @(?:include "([\w-]+(?:\/[\w-]+)?)"( here)?|original(?: (\w+)(?: (functions|rest)( handled)?)?)?)[ \t]*$/gm

/** A piece of a text, or what is inserted there. */
type Part = string | Inclusion | Original

interface Inclusion {
  readonly file: string
  /** Included by a function, which alone knows it. */
  readonly isHere: boolean
  /** On the line after another one of its function. */
  readonly follows: boolean
}

interface Original {
  /** Default: the script that the text is composed around. */
  readonly original: string | undefined
  readonly part: 'functions' | 'rest' | undefined
  readonly isHandled: boolean
}

/** The text of a script of BullMQ, or one of its parts. */
export type OriginalText = (original: Original) => string

/** Composes scripts of files that include each other, and of BullMQ's texts. Each file is read and divided once. */
export class LuaComposer {
  readonly #readLua: (file: string) => string
  readonly #files = new Map<string, readonly Part[]>()

  /** @param readLua the text of a file of `lua/`, by its name without the ending */
  constructor(readLua: (file: string) => string) {
    this.#readLua = readLua
  }

  /**
   * Inserts each included file once, before its first use. Names of files in `lua/lib` are relative to it. What a
   * function includes, by lines with `here`, is made when it is called, and known only there.
   */
  text(text: string, original?: OriginalText): string {
    return this.#join(partsOf(text), new Set(), original)
  }

  /** The same for a file of `lua/`. */
  file(name: string, original?: OriginalText): string {
    return this.#join(this.#partsOf(name), new Set(), original)
  }

  #join(parts: readonly Part[], done: Set<string>, original?: OriginalText): string {
    let here = done
    let text = ''
    for (const part of parts) {
      if (typeof part === 'string') {
        text += part
      } else if ('file' in part) {
        if (part.isHere && !part.follows) here = new Set(done)
        text += this.#include(part.file, part.isHere ? here : done, original)
      } else if (original) {
        text += original(part)
      }
    }
    return text
  }

  #include(file: string, done: Set<string>, original?: OriginalText): string {
    if (done.has(file)) return ''
    done.add(file)
    return this.#join(this.#partsOf(file), done, original)
  }

  #partsOf(file: string): readonly Part[] {
    let parts = this.#files.get(file)
    if (!parts) {
      parts = partsOf(this.#readLua(file))
      this.#files.set(file, parts)
    }
    return parts
  }
}

function partsOf(text: string): Part[] {
  const parts: Part[] = []
  let [end, hereEnd] = [0, Number.NaN]
  for (const { 0: line, 1: name, 2: here, 3: original, 4: part, 5: handled, index } of text.matchAll(MARK)) {
    parts.push(text.slice(end, index))
    end = index + line.length
    if (name === undefined) {
      parts.push({ original, part: part as Original['part'], isHandled: handled !== undefined })
      continue
    }
    const file = name.includes('/') ? name : `lib/${name}`
    parts.push({ file, isHere: here !== undefined, follows: index === hereEnd + 1 })
    if (here !== undefined) hereEnd = end
  }
  parts.push(text.slice(end))
  return parts
}
