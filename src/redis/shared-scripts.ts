/** What ioredis has made of a script: all of it finds the client and the connection of a call by itself. */
interface Made {
  readonly script: unknown
  readonly run: unknown
  readonly runBuffer: unknown
}

interface Scripted extends Record<string, unknown> {
  readonly scriptsSet?: Record<string, unknown>
  readonly options?: { readonly keyPrefix?: string }
}

/**
 * What ioredis has made of our scripts for one client, for the next ones of its class. It hashes each text for each
 * client that it is defined on, which takes longer than all else that a new connection needs.
 */
export class SharedScripts {
  readonly #made = new WeakMap<object, Map<string, Made>>()

  /** @returns whether the client has the script now */
  take(client: object, name: string): boolean {
    const made = this.#ofClass(client)?.get(name)
    if (!made) return false
    const { scriptsSet } = client as Required<Scripted>
    scriptsSet[name] = made.script
    Object.assign(client, { [name]: made.run, [`${name}Buffer`]: made.runBuffer })
    return true
  }

  /** Keeps what was made for a client, if it is one of ioredis. */
  keep(client: object, name: string): void {
    const script = (client as Scripted).scriptsSet?.[name]
    // As it was made: what BullMQ's wrapper returns is bound to the client.
    const own = (property: string): unknown => Object.getOwnPropertyDescriptor(client, property)?.value
    const [run, runBuffer] = [own(name), own(`${name}Buffer`)]
    if (script && run && runBuffer) this.#ofClass(client)?.set(name, { script, run, runBuffer })
  }

  /** Undefined for a client whose scripts have a prefix of its own in them. */
  #ofClass(client: object): Map<string, Made> | undefined {
    if ((client as Scripted).options?.keyPrefix) return undefined
    const of = Object.getPrototypeOf(client) as object
    const made = this.#made.get(of) ?? new Map<string, Made>()
    this.#made.set(of, made)
    return made
  }
}
