/** Values of the keys that a limit counts, for display: `group acme, model gpt-large`. */
export function keysText(keys: Readonly<Record<string, string>>): string {
  const names = Object.keys(keys).sort((one, other) => rank(one) - rank(other) || (one < other ? -1 : 1))
  return names.map((name) => (isNoGroup(name, keys[name]) ? 'no group' : `${name} ${keys[name]}`)).join(', ')
}

function rank(name: string): number {
  return name === 'group' ? 0 : 1
}

/** Jobs without a group are one group without a name. */
function isNoGroup(name: string, value: string | undefined): boolean {
  return name === 'group' && value === ''
}
