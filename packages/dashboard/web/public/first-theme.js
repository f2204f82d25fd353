// Runs before the page is drawn, so that it never flashes in the wrong colours; the switch is in theme.js.
try {
  const chosen = localStorage.getItem('sluice.theme')
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen
} catch {
  // Without storage, the page follows the system's theme.
}
