local as_text = use 'redis/as-text'

-- Jobs that hold the places of a group, or of a limit by keys, and the workers of jobs.
local holders = {
  -- At most this many are looked up.
  MOST = 20,
}

-- An unreadable report counts as missing: another version may have written it.
local function report_of(base, worker)
  local json = worker and redis.call('HGET', base .. 'meta:workers', worker)
  local is_json, row = pcall(cjson.decode, json or '{}')
  return is_json and type(row) == 'table' and row or {}
end

-- The worker that runs a job, or ran it last, as far as known: `id` in the list of workers, by the lock; `name` as
-- BullMQ stores it; `host`, `pid` and `seen` (ms) by its last report.
function holders.worker_of(base, id)
  local lock = redis.call('GET', base .. id .. ':lock')
  -- A token is the id of the worker, a colon, and the number of its lock.
  local worker = lock and string.match(lock, '^[^:]*')
  local row = report_of(base, worker)
  return {
    id = worker or nil, name = row.name or redis.call('HGET', base .. id, 'pb') or nil, host = row.host, pid = row.pid,
    seen = row.seen,
  }
end

-- base: of its queue, which may be another one than q's
local function row_of(q, base, id)
  local row = { id = id, base = base ~= q.base and base or nil, state = 'running', worker = holders.worker_of(base, id) }
  local due, lasts_ms = redis.call('ZSCORE', base .. 'delayed', id), redis.call('PTTL', base .. id .. ':lock')
  if due then row.state, row.dueMs = 'delayed', math.floor(tonumber(due) / 4096)
  elseif redis.call('ZSCORE', base .. 'waiting-children', id) then row.state = 'waiting-children'
  elseif redis.call('ZSCORE', base .. 'prioritized', id) then row.state = 'waiting' end
  if lasts_ms > 0 then row.lockEnds = as_text.us(q.now + lasts_ms * 1000) end
  return row
end

function holders.of_group(q, group)
  local rows = {}
  for i, id in ipairs(redis.call('SMEMBERS', q.base .. 'meta:group:held:' .. group)) do
    if i <= holders.MOST then rows[i] = row_of(q, q.base, id) end
  end
  return rows
end

-- key: of the state of a limit, in which each holder has at least one member: a number and the key of its job
function holders.of_places(q, key)
  local rows = {}
  for _, member in ipairs(redis.call('ZRANGE', key, 0, 2 * holders.MOST)) do
    -- Leases of limiters have no colon.
    local base, id = string.match(member, '^1 (.*:)([^:]*)$')
    if base and #rows < holders.MOST then rows[#rows + 1] = row_of(q, base, id) end
  end
  return rows
end

return holders
