# The worker programs, the gateway and the command line: the packages as they are published, and the start files, whose
# types Node strips.
FROM node:24.14.0-slim AS build
WORKDIR /app
COPY . .
RUN npm ci --ignore-scripts --no-audit --no-fund \
 && npm run build \
 && npm prune --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24.14.0-slim
ENV NODE_ENV=production HEALTH_PORT=8080
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/packages ./packages
COPY workers/email.ts workers/db-writes.ts workers/http.ts workers/gateway.ts ./workers/
COPY examples/db-writes.config.json examples/http.compose.json examples/gateway.config.json ./examples/
USER node
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.HEALTH_PORT}/live`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node"]
CMD ["workers/email.ts"]
