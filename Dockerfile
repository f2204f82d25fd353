# The worker programs and the gateway. Node runs their TypeScript as it is; there is no build step.
FROM node:24.14.0-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
# What the programs load are peer dependencies of the library, or become part of its build. They become dependencies of
# the image, in the versions that the library is tested with; the lock file keeps everything below them.
RUN node -e "const fs = require('fs'); const p = require('./package.json'); \
      const names = ['bullmq', 'ioredis', 'nodemailer', 'pg', 'pino', 'structured-headers', 'undici', 'zod']; \
      names.push('@fastify/cookie', '@fastify/proxy-addr', 'prom-client', 'uplot', 'ajv', 'ajv-formats', 'fastify', 'fastify-plugin', 'ipaddr.js'); \
      names.push('commander', 'cli-table3', 'cli-progress', 'log-update', 'lru-cache', 'picocolors', 'rolldown'); \
      p.dependencies = {}; for (const name of names) p.dependencies[name] = p.devDependencies[name]; \
      delete p.devDependencies; delete p.peerDependencies; delete p.peerDependenciesMeta; delete p.scripts; \
      fs.writeFileSync('package.json', JSON.stringify(p, null, 2))" \
 && npm install --package-lock-only --ignore-scripts --no-audit --no-fund \
 && npm ci --ignore-scripts --no-audit --no-fund

FROM node:24.14.0-slim
ENV NODE_ENV=production HEALTH_PORT=8080
WORKDIR /app
COPY --from=dependencies /app/package.json ./
COPY --from=dependencies /app/node_modules ./node_modules
COPY lua ./lua
COPY src ./src
COPY web ./web
COPY workers/email.ts workers/db-writes.ts workers/http.ts workers/gateway.ts ./workers/
COPY examples/db-writes.config.json examples/http.compose.json examples/gateway.config.json ./examples/
USER node
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.HEALTH_PORT}/live`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node"]
CMD ["workers/email.ts"]
