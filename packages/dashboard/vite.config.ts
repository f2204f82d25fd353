import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { defineConfig } from 'vite'

/** Writes each file compressed beside itself: the server sends what the browser takes. */
const precompressed = {
  name: 'precompressed',
  writeBundle({ dir = '' }: { dir?: string }) {
    for (const entry of readdirSync(dir, { recursive: true, withFileTypes: true })) {
      const file = join(entry.parentPath, entry.name)
      if (!/\.(?:html|js|css|svg)$/.test(file)) continue
      const text = readFileSync(file)
      writeFileSync(`${file}.br`, brotliCompressSync(text))
      writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }))
    }
  },
}

export default defineConfig({
  root: join(import.meta.dirname, 'web'),
  // Wherever the dashboard is mounted.
  base: './',
  logLevel: 'warn',
  plugins: [precompressed],
  build: {
    outDir: join(import.meta.dirname, 'dist', 'web'),
    emptyOutDir: true,
    // The policy of the page lets nothing in that is not a file.
    assetsInlineLimit: 0,
    // The server announces what the page of a queue needs.
    manifest: true,
    license: true,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
})
