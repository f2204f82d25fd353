local next_departure = use 'admission/next-departure'
local queue_groups = use 'groups/queue-groups'
local as_text = use 'redis/as-text'

-- The age of the head, for reports. Hot scripts do not need it.

local queue_head = {}

-- When a job became ready, ms, from its fields timestamp, opts and processedOn.
function queue_head.ready_ms(fields)
  local delay = tonumber(cjson.decode(fields[2] or '{}').delay) or 0
  return math.max(tonumber(fields[1]) + delay, tonumber(fields[3]) or 0)
end

-- The first job at or after each of these priorities may be the oldest.
local SAMPLED = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 50, 100, 1000, 10000 }

-- When the oldest waiting job became ready, ms, nil if unknown. The next jobs are the oldest only if none has a
-- priority or was added with `lifo`, so this reads both ends of the list and some priorities. known: one such time
function queue_head.oldest_ms(base, known)
  local set, looked_at = base .. 'prioritized', {}
  local function look(id)
    if not id or looked_at[id] then return end
    looked_at[id] = true
    local fields = redis.call('HMGET', base .. id, 'timestamp', 'opts', 'processedOn')
    local ready = fields[1] and queue_head.ready_ms(fields)
    if ready then known = math.min(known or ready, ready) end
  end
  look(redis.call('LINDEX', base .. 'wait', -1))
  look(redis.call('LINDEX', base .. 'wait', 0))
  local first = redis.call('ZRANGE', set, 0, 0)[1]
  look(first)
  for _, priority in ipairs(first and SAMPLED or {}) do
    look(redis.call('ZRANGEBYSCORE', set, as_text.us(priority * queue_groups.BAND), '+inf', 'LIMIT', 0, 1)[1])
  end
  return known
end

-- The older of the known job and another one that exists: its fields timestamp, opts and processedOn.
local function head_older(base, id, known)
  local fields = id and redis.call('HMGET', base .. id, 'timestamp', 'opts', 'processedOn')
  if not fields or not fields[1] then return known end
  return known and queue_head.ready_ms(known) <= queue_head.ready_ms(fields) and known or fields
end

-- With groups, each departure changes the next job, so the head is the oldest job that may depart. Candidates are the
-- first ungrouped job and the first grouped job; if its group is not in line, the first job of each of the first groups
-- in line. If all groups are held, candidates are the first jobs by slot, then of groups with all places taken, then of
-- paused groups.
local function head_of_groups(base)
  local MOST, lists = 16, base .. 'meta:groups:'
  local front = redis.call('ZRANGE', base .. 'prioritized', 0, 0)[1]
  local plain = redis.call('LINDEX', base .. 'wait', -1)
    or redis.call('ZRANGEBYSCORE', base .. 'prioritized', as_text.us(queue_groups.BAND), '+inf', 'LIMIT', 0, 1)[1]
  local goes = plain and not redis.call('ZSCORE', lists .. 'limited', '')
  local head = goes and head_older(base, plain, nil) or nil
  local group = front and queue_groups.of_job(base, front)
  if group and redis.call('ZSCORE', lists .. 'ready', group) then return head_older(base, front, head) end
  for _, list in ipairs({ 'ready', 'stale', 'limited', 'full', 'paused' }) do
    local names = redis.call('ZRANGE', lists .. list, 0, MOST - 1)
    for _, name in ipairs(names) do
      local first = list == 'limited' and plain
      if name ~= '' then first = redis.call('ZRANGE', base .. 'meta:group:jobs:' .. name, 0, 0)[1] end
      -- In mode `off`, a line may still list a departed job.
      if first and (name == '' or redis.call('ZSCORE', base .. 'prioritized', first)) then
        head = head_older(base, first, head)
      end
    end
    if goes or #names > 0 then break end
  end
  -- Jobs that are not in a line yet.
  return head or head_older(base, front, head_older(base, plain, nil))
end

-- The same fields of the head, nil if no job waits.
function queue_head.fields(base, shape, now)
  if shape and shape.groups then return head_of_groups(base) end
  return head_older(base, next_departure.head(base, shape, now), nil)
end

return queue_head
