import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { type Mutant, mutantsOf, sampleOf } from './mutants.ts'
import { FEW, ROOMS, type Room } from './rooms.ts'
import { Suite } from './suite.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const { values: options } = parseArgs({
  options: {
    files: { type: 'string', default: ROOMS.map(({ name }) => name).join(',') },
    sample: { type: 'string', default: '40' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string' },
    tests: { type: 'string' },
    quick: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
  },
})

/** The copy that is mutated: others may read the files of the project meanwhile. */
function copyProject(): string {
  const tree = mkdtempSync(join(tmpdir(), 'sluice-mutation-'))
  const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' })
  for (const file of list.split('\n').filter(Boolean)) {
    mkdirSync(dirname(join(tree, file)), { recursive: true })
    copyFileSync(join(ROOT, file), join(tree, file))
  }
  for (const folder of ['node_modules', '.cache']) symlinkSync(join(ROOT, folder), join(tree, folder))
  return tree
}

/** The rooms that were asked for, and the mutants of each: those of a whole room, of a file, or of `file:line`. */
function asked(): { readonly room: Room; readonly mutants: readonly Mutant[] }[] {
  const list = execFileSync('git', ['ls-files', 'src', 'lua'], { cwd: ROOT, encoding: 'utf8' }).split('\n')
  const wanted = options.files.split(',')
  return ROOMS.flatMap((room) => {
    const files = list.filter(
      (file) => room.of.some((it) => `${file}/`.startsWith(`${it}/`)) && /\.(lua|ts)$/.test(file),
    )
    const mutants = files
      .flatMap((file) => mutantsOf(ROOT, file))
      .filter(({ file, line }) =>
        wanted.some((it) => it === room.name || file.startsWith(`${it}/`) || it === file || it === `${file}:${line}`),
      )
    return mutants.length > 0
      ? [{ room, mutants: sampleOf(mutants, Number(options.sample), Number(options.seed)) }]
      : []
  })
}

/** The tests of a room, with few decisions and then with all. */
class Tests {
  readonly #suite: Suite
  readonly #quick: readonly string[]
  readonly #wide: readonly string[]
  /** Those that pass without a mutant. */
  readonly #sound = new Set<string>()

  private constructor(suite: Suite, quick: readonly string[], wide: readonly string[]) {
    this.#suite = suite
    this.#quick = quick
    this.#wide = wide
  }

  static async of(suite: Suite, { name, quick, wide }: Room): Promise<Tests> {
    const given = options.tests?.split(',')
    const all = given ?? (options.quick ? [] : [...quick, ...wide])
    const tests = new Tests(suite, await suite.files(given ? [] : quick), await suite.files(all))
    const failed = await tests.#first()
    if (failed) throw new Error(`expected the tests of ${name} to pass without a mutant, but ${failed} failed`)
    return tests
  }

  /** The test file that notices a mutant. */
  async killerOf({ file, text }: Mutant): Promise<string | undefined> {
    const original = this.#suite.write(file, text)
    const soon = await this.#first()
    const killer = soon ?? (await this.#killerAmong(this.#wide))
    this.#suite.write(file, original)
    if (soon || !killer || this.#sound.has(killer)) return killer
    if (await this.#suite.run([killer])) throw new Error(`expected ${killer} to pass without a mutant`)
    this.#sound.add(killer)
    return killer
  }

  /** It fails twice: once, a busy machine may be why. */
  async #killerAmong(files: readonly string[]): Promise<string | undefined> {
    const killer = await this.#suite.run(files)
    if (killer === undefined || (await this.#suite.run([killer]))) return killer
    return this.#killerAmong(files.filter((file) => file !== killer))
  }

  async #first(): Promise<string | undefined> {
    Object.assign(process.env, FEW)
    const killer = await this.#killerAmong(this.#quick)
    for (const name of Object.keys(FEW)) delete process.env[name]
    return killer
  }
}

async function score(suite: Suite, { room, mutants }: ReturnType<typeof asked>[number]): Promise<string> {
  const tests = await Tests.of(suite, room)
  let killed = 0
  const only = options.only?.split(',').map(Number) ?? mutants.map((_, i) => i + 1)
  for (const [i, mutant] of mutants.entries()) {
    if (!only.includes(i + 1)) continue
    const begunMs = Date.now()
    const killer = await tests.killerOf(mutant)
    if (killer) killed++
    const what = `${mutant.file}:${mutant.line}  ${mutant.before}  =>  ${mutant.after}`.replaceAll(/\s*\n\s*/g, ' ')
    const seconds = ((Date.now() - begunMs) / 1000).toFixed(0)
    console.log(`${i + 1}/${mutants.length} ${killer ? `killed by ${killer}` : 'SURVIVED'} (${seconds} s)  ${what}`)
  }
  return `${room.name}: ${killed} of ${only.length} killed (${((100 * killed) / only.length).toFixed(0)} %)`
}

async function main(): Promise<void> {
  const rooms = asked()
  if (options.list) {
    for (const { room, mutants } of rooms) console.log(`${room.name}: ${mutants.length}`)
    return
  }
  const tree = copyProject()
  const suite = await Suite.start(tree)
  const scores: string[] = []
  try {
    for (const room of rooms) {
      scores.push(await score(suite, room))
      console.log(scores.at(-1))
    }
    console.log(`\nSeed ${options.seed}, up to ${options.sample} mutants of each room\n${scores.join('\n')}`)
  } finally {
    await suite.stop()
    rmSync(tree, { recursive: true, force: true })
  }
}

await main()
