local as_text = use 'redis/as-text'

-- Ageing: each `priorityAgeingMs` of waiting makes a job one level more important. All jobs age alike, so their order
-- does not change while they wait: the job with the least (time since when it waits + its priority * priorityAgeingMs)
-- departs first. Jobs of one priority keep BullMQ's order, therefore only the first of each priority are compared.
-- There is no index: BullMQ's wait list (level 0), its set `prioritized`, and the line of a group are the same as
-- without ageing, and scripts without ageing may change them.
--   queuedAt   in the hash of a job: since when it waits, µs (gate/queued-at-redis). A job without it, such as one of a
--              plain BullMQ producer, gets it when it is the first of its priority: its due time by the clock of its
--              producer, and not later than now
-- A line is { set, from, list }: jobs of a sorted set with scores >= from (priority * 2^32 + a number), and a wait
-- list, or nil.

-- Nil if jobs do not age.
--   ageing.queue   the line of a queue without groups
--   ageing.keeps   for scripts that start jobs: times of jobs are stored, and the first jobs of a line are remembered
--                  while jobs leave it
local function ageing_open(base, shape, now)
  if not shape or not shape.ageing_ms or shape.mode == 'off' then return nil end
  local ageing = { queue = { set = base .. 'prioritized', from = 0, list = base .. 'wait' }, keeps = false }
  local step = shape.ageing_ms * 1000
  -- With more priorities than this, the first ones are compared, and a random one, so that none starves.
  local BAND, MOST = 4294967296, 64
  -- Cached per line: the first jobs of a set, as `levels` returns them, and the first job of a wait list.
  local levels_of, head_of = {}, {}

  local function since(id)
    local key = base .. id
    local at = redis.call('HGET', key, 'queuedAt')
    if at then return tonumber(at) end
    local f = redis.call('HMGET', key, 'timestamp', 'opts')
    -- Another script removed the job from its queue, but not from the line of its group: it must not hold up the line.
    if not f[1] then return 0 end
    local delay = f[2] and string.find(f[2], '"delay":', 1, true) and tonumber(cjson.decode(f[2]).delay) or 0
    at = math.min(now, (tonumber(f[1]) + delay) * 1000)
    if ageing.keeps then redis.call('HSET', key, 'queuedAt', as_text.us(at)) end
    return at
  end

  -- A waiting job with its key. The least key departs first.
  local function entry(id, score)
    local priority = math.floor(tonumber(score) / BAND)
    -- In a group with strict order (groups/strict), one job goes before all others.
    local key = priority < 0 and -math.huge or since(id) + priority * step
    return { id = id, score = score, priority = priority, from = 'prioritized', key = key }
  end

  local function at_rank(set, rank)
    local found = redis.call('ZRANGE', set, rank, rank, 'WITHSCORES')
    return found[1] and entry(found[1], found[2])
  end

  -- to: the score before which it has to be
  local function first_from(set, score, to)
    local found = redis.call('ZRANGEBYSCORE', set, as_text.us(score), to and '(' .. as_text.us(to) or '+inf', 'WITHSCORES',
      'LIMIT', 0, 1)
    return found[1] and entry(found[1], found[2])
  end

  -- The first job of each priority, at most MOST of them; levels.from: where the others begin, nil if there are none.
  local function levels(line)
    local set = line.set
    local found = levels_of[set] or { from = line.from }
    if ageing.keeps then levels_of[set] = found end
    for at = #found, 1, -1 do
      local priority = found[at].left and found[at].priority
      if priority then
        found[at] = first_from(set, priority * BAND, (priority + 1) * BAND) or false
        if not found[at] then table.remove(found, at) end
      end
    end
    while found.from and #found < MOST do
      local first = first_from(set, found.from)
      found.from = first and (first.priority + 1) * BAND
      found[#found + 1] = first
    end
    return found
  end

  -- The first job of each priority; with more than MOST, that many and a random one.
  local function firsts(line)
    local found = levels(line)
    local others = found.from and redis.call('ZCOUNT', line.set, as_text.us(found.from), '+inf') or 0
    if others == 0 then return found end
    local any = at_rank(line.set, redis.call('ZCARD', line.set) - 1 - now % others)
    local all = { unpack(found) }
    all[#all + 1] = first_from(line.set, any.priority * BAND)
    return all
  end

  -- The first job of the wait list of a line, nil if there is none.
  local function head(line)
    local list = line.list
    if not list then return nil end
    if head_of[list] then return head_of[list] end
    local id = redis.call('LINDEX', list, -1)
    if not id then return nil end
    -- '0:...' are markers that queues of BullMQ 4 left in the list: they go first.
    local marker = string.sub(id, 1, 2) == '0:'
    local first = { id = id, from = 'wait', key = marker and -math.huge or since(id), index = 0 }
    if ageing.keeps and not marker then head_of[list] = first end
    return first
  end

  -- The job behind another one of its priority, if there is one.
  local function behind(line, job)
    if job.from == 'wait' then
      local id = redis.call('LINDEX', line.list, -2 - job.index)
      return id and { id = id, from = 'wait', key = since(id), index = job.index + 1 }
    end
    local rank = job.rank or redis.call('ZRANK', line.set, job.id)
    local next = at_rank(line.set, rank + 1)
    if not next or next.priority ~= job.priority then return nil end
    next.rank = rank + 1
    return next
  end

  -- The jobs of a line in order of departure: a function of n, the n-th of them: {id, from: wait or prioritized,
  -- score}, nil if there are fewer. They are looked up only as far as requested.
  local function ordered(line)
    local heads, jobs, last = nil, {}, nil
    return function(n)
      -- In the order of their priorities, which decide between equal keys.
      heads = heads or { head(line), unpack(firsts(line)) }
      while #jobs < n do
        if last then heads[last] = behind(line, heads[last]) or nil end
        last = nil
        for i, first in pairs(heads) do if not last or first.key < heads[last].key then last = i end end
        if not last then return nil end
        jobs[#jobs + 1] = heads[last]
      end
      return jobs[n]
    end
  end

  -- The same, as their ids.
  function ageing.order(line)
    local jobs = ordered(line)
    return function(n) return (jobs(n) or {}).id end
  end

  -- The next job to depart; nil if none waits.
  function ageing.first(line)
    return ordered(line)(1)
  end

  -- A job has left a line, from its front or elsewhere.
  function ageing.left(line, id)
    local first, found = line.list and head_of[line.list], levels_of[line.set]
    if first and first.id == id then head_of[line.list] = nil end
    if not found then return end
    for _, level in ipairs(found) do if level.id == id then level.left = true end end
  end

  -- A job has come into a line, or an unknown job has left it.
  function ageing.forget()
    levels_of, head_of = {}, {}
  end

  -- The first two jobs of a set, as ZRANGE with their scores would return them.
  function ageing.first_two(set)
    local two = redis.call('ZRANGE', set, 0, 1, 'WITHSCORES')
    if not two[3] then
      -- A single job needs no comparison.
      if two[1] and ageing.keeps then since(two[1]) end
      return two
    end
    local line = { set = set, from = -BAND }
    if #firsts(line) == 1 then return two end
    local jobs = ordered(line)
    local best, second = jobs(1), jobs(2)
    return { best.id, best.score, second.id, second.score }
  end

  local function level_size(set, priority)
    return redis.call('ZCOUNT', set, as_text.us(priority * BAND), '(' .. as_text.us((priority + 1) * BAND))
  end

  -- How many of the `length` jobs of one priority, in order of arrival, depart before a key.
  local function sooner(length, key_at, key, ties)
    -- Most often all of them do.
    local low, high, middle = 0, length, length - 1
    while low < high do
      local other = key_at(middle)
      if other < key or (ties and other == key) then low = middle + 1 else high = middle end
      middle = math.floor((low + high) / 2)
    end
    return low
  end

  -- The jobs of a priority for counting: {length, key_at}; each key is looked up once.
  local function counted(length, look_up)
    local keys = {}
    return { length = length, key_at = function(place)
      keys[place] = keys[place] or look_up(place)
      return keys[place]
    end }
  end

  -- How many jobs of other priorities depart before one that has waited since `at` (µs), with this priority. in_list:
  -- whether it is one of the wait list; seen: cached lookups of the line, for repeated calls
  function ageing.others(line, at, priority, in_list, seen)
    local key, count = at + priority * step, 0
    if line.list and not in_list then
      local function key_of(place) return since(redis.call('LINDEX', line.list, -1 - place)) end
      seen[-1] = seen[-1] or counted(redis.call('LLEN', line.list), key_of)
      count = sooner(seen[-1].length, seen[-1].key_at, key, true)
    end
    seen.firsts = seen.firsts or firsts(line)
    for _, first in ipairs(seen.firsts) do
      local other = first.priority
      if (in_list or other ~= priority) and (first.key < key or (first.key == key and other < priority)) then
        local rank = not seen[other] and redis.call('ZRANK', line.set, first.id)
        local function key_of(place) return at_rank(line.set, rank + place).key end
        seen[other] = seen[other] or counted(level_size(line.set, other), key_of)
        count = count + sooner(seen[other].length, seen[other].key_at, key, other < priority)
      end
    end
    return count
  end

  -- How many waiting jobs depart before a new one that arrives at `at` (µs).
  function ageing.behind(line, at, priority, seen)
    if line.list and priority == 0 then
      return redis.call('LLEN', line.list) + ageing.others(line, at, 0, true, seen or {})
    end
    return level_size(line.set, priority) + ageing.others(line, at, priority, false, seen or {})
  end

  -- The same for many new jobs: a function of `at` and the priority, as long as no job comes or leaves.
  function ageing.behind_all(line)
    local seen, counts = {}, {}
    return function(at, priority)
      local known = counts[priority] or {}
      counts[priority] = known
      known[at] = known[at] or ageing.behind(line, at, priority, seen)
      return known[at]
    end
  end

  -- How many jobs depart before a waiting one. index: its place in the wait list, 0 for the next; nil for a job of the
  -- set
  function ageing.ahead(line, id, index)
    if index then return index + ageing.others(line, since(id), 0, true, {}) end
    local own = entry(id, redis.call('ZSCORE', line.set, id))
    local same = redis.call('ZCOUNT', line.set, as_text.us(own.priority * BAND), '(' .. own.score)
    return same + ageing.others(line, own.key - own.priority * step, own.priority, false, {})
  end

  return ageing
end

return ageing_open
