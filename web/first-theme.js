// Runs before the page is drawn, so that no wrong colours flash up; the switch is theme.js.
try {
  const chosen = localStorage.getItem('sluice.theme')
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen
} catch {
  // A browser that keeps nothing follows the system.
}
