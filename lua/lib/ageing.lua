--- @include "text"

-- Ageing: for each `priorityAgeingMs` that a job waits it counts as one level more important. All jobs age alike, so
-- their order does not change while they wait: the job with the least (since when it waits + its priority *
-- priorityAgeingMs) leaves first. Jobs of one priority keep BullMQ's order, therefore only the first of each priority
-- are compared. There is no index: BullMQ's wait list (level 0) and its set `prioritized`, and the line of a group, are
-- as they are without ageing, and scripts that know nothing of it may change them.
--   queuedAt   in the hash of a job: since when it waits, µs (lib/queued-at). A job without it, such as one of a stock
--              producer, gets it when it is the first of its priority: its due time by the clock of its producer, and
--              not later than now
-- A line is { set, from, list }: jobs of a sorted set with scores >= from (priority * 2^32 + a number), and a wait list,
-- or nil.

-- Nil if jobs do not age.
--   ageing.queue   the line of a queue without groups
--   ageing.keeps   whether what is found out of a job is stored, for scripts that start jobs
-- One function creates all the others: a script that needs none of them does not pay for them.
local function ageing_open(base, shape, now)
  if not shape or not shape.ageing_ms or shape.mode == 'off' then return nil end
  local ageing = { queue = { set = base .. 'prioritized', from = 0, list = base .. 'wait' }, keeps = false }
  local step = shape.ageing_ms * 1000
  -- Of more priorities than this, the first ones are compared, and one at random, so that none starves.
  local BAND, MOST = 4294967296, 64

  local function since(id)
    local key = base .. id
    local at = redis.call('HGET', key, 'queuedAt')
    if at then return tonumber(at) end
    local f = redis.call('HMGET', key, 'timestamp', 'opts')
    -- A job that another script removed from its queue, but not from the line of its group: nothing is to wait behind it.
    if not f[1] then return 0 end
    local delay = f[2] and string.find(f[2], '"delay":', 1, true) and tonumber(cjson.decode(f[2]).delay) or 0
    at = math.min(now, (tonumber(f[1]) + delay) * 1000)
    if ageing.keeps then redis.call('HSET', key, 'queuedAt', us_text(at)) end
    return at
  end

  -- A waiting job with its key, the least of which leaves first.
  local function entry(id, score)
    local priority = math.floor(tonumber(score) / BAND)
    return { id = id, score = score, priority = priority, from = 'prioritized', key = since(id) + priority * step }
  end

  local function at_rank(set, rank)
    local found = redis.call('ZRANGE', set, rank, rank, 'WITHSCORES')
    return found[1] and entry(found[1], found[2])
  end

  local function first_from(set, score)
    local found = redis.call('ZRANGEBYSCORE', set, us_text(score), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return found[1] and entry(found[1], found[2])
  end

  -- The first job of each priority.
  local function firsts(line)
    local found, from = {}, line.from
    while #found < MOST do
      local first = first_from(line.set, from)
      if not first then return found end
      found[#found + 1], from = first, (first.priority + 1) * BAND
    end
    local others = redis.call('ZCOUNT', line.set, us_text(from), '+inf')
    if others == 0 then return found end
    local any = at_rank(line.set, redis.call('ZCARD', line.set) - 1 - now % others)
    found[#found + 1] = first_from(line.set, any.priority * BAND)
    return found
  end

  local function before(one, other)
    if one.key ~= other.key then return one.key < other.key end
    return one.priority < other.priority
  end

  -- The job that leaves next: {id, from: wait or prioritized, score}, nil if none waits.
  function ageing.first(line)
    local id = line.list and redis.call('LINDEX', line.list, -1)
    -- '0:...' are markers that queues of BullMQ 4 left in the list.
    if id and string.sub(id, 1, 2) == '0:' then return { id = id, from = 'wait' } end
    local best = id and { id = id, from = 'wait', priority = -1, key = since(id) } or nil
    for _, first in ipairs(firsts(line)) do
      if not best or before(first, best) then best = first end
    end
    return best
  end

  -- The first two jobs of a set, as ZRANGE with their scores would return them.
  function ageing.first_two(set)
    local line, best, second = firsts({ set = set, from = 0 }), nil, nil
    for _, first in ipairs(line) do
      if not best or before(first, best) then best, second = first, best
      elseif not second or before(first, second) then second = first end
    end
    if not best then return {} end
    local behind = at_rank(set, redis.call('ZRANK', set, best.id) + 1)
    if behind and behind.priority == best.priority and (not second or before(behind, second)) then second = behind end
    return { best.id, best.score, second and second.id, second and second.score }
  end

  -- The job behind another one of its priority, if there is one.
  local function behind(line, job)
    if job.from == 'wait' then
      local id = redis.call('LINDEX', line.list, -2 - job.index)
      return id and { id = id, from = 'wait', priority = -1, key = since(id), index = job.index + 1 }
    end
    local rank = job.rank or redis.call('ZRANK', line.set, job.id)
    local next = at_rank(line.set, rank + 1)
    if not next or next.priority ~= job.priority then return nil end
    next.rank = rank + 1
    return next
  end

  -- The jobs of a line in the order in which they leave: a function of n, the id of the n-th, nil if there are fewer. They
  -- are looked up only as far as is asked for.
  function ageing.order(line)
    local heads, ids = nil, {}
    local function begin()
      heads = firsts(line)
      local id = line.list and redis.call('LINDEX', line.list, -1)
      if id then table.insert(heads, 1, { id = id, from = 'wait', priority = -1, key = since(id), index = 0 }) end
    end
    return function(n)
      if not heads then begin() end
      while #ids < n and #heads > 0 do
        local best = 1
        for i, head in ipairs(heads) do if before(head, heads[best]) then best = i end end
        local job = heads[best]
        ids[#ids + 1] = job.id
        local next = behind(line, job)
        if next then heads[best] = next else table.remove(heads, best) end
      end
      return ids[n]
    end
  end

  local function level_size(set, priority)
    return redis.call('ZCOUNT', set, us_text(priority * BAND), '(' .. us_text((priority + 1) * BAND))
  end

  -- How many of the `length` jobs of one priority, in the order of their coming, leave before a key.
  local function sooner(length, key_at, key, ties)
    local low, high = 0, length
    while low < high do
      local middle = math.floor((low + high) / 2)
      local other = key_at(middle)
      if other < key or (ties and other == key) then low = middle + 1 else high = middle end
    end
    return low
  end

  -- How many jobs of other priorities leave before one that has waited since `at` (µs), with this priority.
  -- in_list: whether it is one of the wait list
  function ageing.others(line, at, priority, in_list)
    local key, count = at + priority * step, 0
    if line.list and not in_list then
      count = sooner(redis.call('LLEN', line.list), function(i)
        return since(redis.call('LINDEX', line.list, -1 - i))
      end, key, true)
    end
    for _, first in ipairs(firsts(line)) do
      local other = first.priority
      if (in_list or other ~= priority) and (first.key < key or (first.key == key and other < priority)) then
        local rank = redis.call('ZRANK', line.set, first.id)
        local length = level_size(line.set, other)
        count = count + sooner(length, function(i) return at_rank(line.set, rank + i).key end, key, other < priority)
      end
    end
    return count
  end

  -- How many waiting jobs leave before a new one that comes at `at` (µs).
  function ageing.behind(line, at, priority)
    if line.list and priority == 0 then return redis.call('LLEN', line.list) + ageing.others(line, at, 0, true) end
    return level_size(line.set, priority) + ageing.others(line, at, priority, false)
  end

  -- How many jobs leave before a waiting one. index: its place in the wait list, 0 for the next; nil for a job of the set
  function ageing.ahead(line, id, index)
    if index then return index + ageing.others(line, since(id), 0, true) end
    local own = entry(id, redis.call('ZSCORE', line.set, id))
    local same = redis.call('ZCOUNT', line.set, us_text(own.priority * BAND), '(' .. own.score)
    return same + ageing.others(line, own.key - own.priority * step, own.priority, false)
  end

  return ageing
end
