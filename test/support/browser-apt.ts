import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { downloadPackages } from '../../workers/services/apt-download.ts'
import { buildOnce } from '../../workers/services/build-once.ts'
import { runCommand } from '../../workers/services/run-command.ts'

const PACKAGE = 'chromium-headless-shell'
const FOLDER = fileURLToPath(new URL(`../../.cache/browser/${PACKAGE}-${process.arch}/`, import.meta.url))

/**
 * The path of a start script for Debian's Chromium, downloaded with apt into the project's cache folder unless it is
 * already there: the build that never has a window, whose pages take half of the CPU time. It needs no root rights and
 * does not change installed packages. Several processes may call it at the same time.
 */
export async function fetchAptChromium(): Promise<string> {
  const starter = join(FOLDER, 'bin', PACKAGE)
  if (!existsSync(starter)) await buildOnce(FOLDER.replace(/[\\/]$/, ''), build)
  return starter
}

async function build(building: string): Promise<void> {
  const root = join(building, 'root')
  await downloadPackages([PACKAGE, 'fonts-inter'], join(building, 'apt'), root)
  const starter = join(building, 'bin', PACKAGE)
  await mkdir(dirname(starter))
  await writeFile(join(building, 'fonts.conf'), FONTS)
  await writeFile(starter, starterScript(await libraryFolders(root)))
  await chmod(starter, 0o755)
  await runCommand(starter, ['--version'])
}

/** Starts the program itself rather than Debian's wrapper, which reads settings from fixed folders. */
function starterScript(folders: readonly string[]): string {
  const paths = folders.map((folder) => `$here/root/${folder}`).join(':')
  return [
    '#!/bin/sh',
    'here=$(cd "$' + '{0%/*}/.." && pwd)',
    'export FONTCONFIG_FILE="$here/fonts.conf"',
    `LD_LIBRARY_PATH="${paths}" exec "$here/root/usr/lib/chromium/${PACKAGE}" "$@"`,
    '',
  ].join('\n')
}

/** The folders below `root`, relative to it, that hold shared libraries. */
async function libraryFolders(root: string): Promise<string[]> {
  const files = await readdir(root, { recursive: true })
  return [...new Set(files.filter((file) => /\.so(\.\d+)*$/.test(file)).map((file) => dirname(file)))].sort()
}

/** A machine without a screen may have no fonts. Paths are relative to this file. */
const FONTS = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">root/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias binding="strong"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
`
