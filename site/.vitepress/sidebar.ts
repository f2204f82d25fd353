interface Page {
  text: string
  link: string
}

/** A page: its title in the sidebar, and its file in docs without `.md`. */
function page(text: string, file: string): Page {
  return { text, link: `/${file}` }
}

/** Every page of docs that is committed, once: a test compares the two. */
export const sidebar: { text: string; items: Page[] }[] = [
  {
    text: 'Start',
    items: [
      page('Tutorial', 'start'),
      page('In your project, and its tests', 'projects'),
      page('Guarantees', 'guarantees'),
      page('Compare', 'compare'),
      page('Migrating, and back', 'migrate'),
    ],
  },
  {
    text: 'Recipes',
    items: [
      page('All; tenants, debounce, HTTP, NestJS', 'recipes/index'),
      page("Mail at a provider's limit", 'recipes/mail'),
      page('Sign-up with Express, Fastify, Next.js', 'recipes/signup'),
      page('Quiet hours and domain warm-up', 'recipes/quiet-hours'),
      page('Webhooks per endpoint', 'recipes/webhooks'),
      page('LLM calls by model, customer and tokens', 'recipes/llm'),
      page('A pool of API keys', 'recipes/pool'),
    ],
  },
  {
    text: 'Concepts',
    items: [
      page('In pictures', 'concepts'),
      page('Sizing and simulation', 'sizing'),
      page('Admission', 'admission'),
      page('Groups', 'groups'),
      page('Shards', 'sharding'),
      page('Limits', 'limits'),
      page('Limiters', 'limiters'),
      page('Feedback', 'feedback'),
      page('What a processor must do', 'processors'),
      page('Batches, PostgreSQL at 5,000 rows a second', 'batches'),
      page('Failures and dead letters', 'failures'),
    ],
  },
  {
    text: 'Operate',
    items: [
      page('Production checklist', 'production'),
      page('High availability and hosted Redis', 'high-availability'),
      page('Kubernetes', 'kubernetes'),
      page('Runbook', 'runbook'),
      page('Dashboard', 'dashboard'),
      page('Command line', 'cli'),
      page('Metrics and traces', 'metrics'),
      page('Doctor and audit', 'doctor'),
      page('Security and users of Redis', 'security'),
      page('Personal data', 'personal-data'),
    ],
  },
  {
    text: 'Reference',
    items: [
      page('Queues and workers', 'queues'),
      page('Errors', 'errors'),
      page('Commands', 'commands'),
      page('Worker programs', 'workers'),
      page('Gateway', 'gateway'),
      page('HTTP', 'http'),
      page('Inspector', 'inspect'),
    ],
  },
  {
    text: 'Design',
    items: [
      page('The meter', 'algorithm'),
      page('Benchmarks', 'benchmarks'),
      page('Faults', 'faults'),
      page('Redis keys', 'redis-keys'),
      page('Compatibility', 'compatibility'),
      page('Development', 'development'),
    ],
  },
]
