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

-- Adds a list of so many to a stream of which about `kept` are to be kept in all. An entry has as its id how many there
-- were up to it: by the number of entries nobody could tell, since one holds what a call or a report came to.
function audit.add(key, kept, list, count)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local id = (last and tonumber(string.match(last[1], '^%d+')) or 0) + count
  redis.call('XADD', key, 'MINID', '~', us_text(math.max(0, id - kept)), us_text(id) .. '-0', 'n', list)
end

-- kept: how many departures
function audit.keep(base, kept, entries)
  if #entries == 0 then return end
  audit.add(base .. 'meta:audit', kept, cjson.encode(entries), #entries)
end
