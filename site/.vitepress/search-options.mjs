/** How the site is searched, in MiniSearch's terms. VitePress sends the text of each function to the browser. */
export const searchOptions = {
  combineWith: 'AND',
  prefix: true,
  // A status code is no misspelling of another.
  fuzzy: (term) => (/\d/.test(term) || term.length < 5 ? false : 0.2),
  boost: { title: 4, titles: 2, text: 1 },
  // Guides before the pages that are generated.
  boostDocument: (id) => (/^\/(api|commands|errors)\b/.test(id) ? 0.5 : 1),
}
