--- @include "text"

-- Departures, kept as they were granted where `shape.audit` asks for it: one entry for those of a call, a JSON list of
-- {job id, slot µs, cost, interval µs or 0, burst or 0, {limit: cost} or 0}. The numbers are texts: they are exact.
local audit = {}

-- parts: those of lib/queue-limits that the job was charged with, or nil
function audit.entry(id, slot, cost, m, parts)
  local limits = 0
  for _, part in ipairs(parts or {}) do
    if part.l.mode ~= 'off' then
      if limits == 0 then limits = {} end
      limits[part.l.name] = part.cost
    end
  end
  local enforced = m and m.mode == 'enforce'
  return {
    id, us_text(math.ceil(slot)), exact_text(cost), enforced and exact_text(m.interval) or 0,
    enforced and exact_text(m.burst) or 0, limits,
  }
end

-- kept: how many entries
function audit.keep(base, kept, entries)
  if #entries == 0 then return end
  redis.call('XADD', base .. 'meta:audit', 'MAXLEN', '~', kept, '*', 'n', cjson.encode(entries))
end
