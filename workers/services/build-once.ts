import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/**
 * Makes `folder` by running `build` in a folder beside it, and renaming that when it is complete. Several processes may
 * do so at the same time: the first rename wins, and none of them ever sees an incomplete folder.
 */
export async function buildOnce(folder: string, build: (building: string) => Promise<void>): Promise<void> {
  const parent = dirname(folder)
  await mkdir(parent, { recursive: true })
  const building = await mkdtemp(join(parent, '.building-'))
  try {
    await build(building)
    await rename(building, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(building, { recursive: true, force: true })
  }
}
