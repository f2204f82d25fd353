local ageing_open = use 'gate/ageing-open'
local group_later = use 'groups/later'
local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- The lines in which jobs of groups wait (groups/queue-groups): how they enter and leave, by our scripts and by others,
-- and how many places they hold. Adds these functions to the table of groups/queue-groups.
local function group_jobs(groups)
  -- From now on new jobs are stored when the groups are saved: by one command in BullMQ's set, and by one in the line
  -- of each of their groups. Nothing may look for them there before.
  function groups.gather(g)
    g.gathered, g.lines, g.lane_lines = {}, {}, {}
  end

  -- number: of the job; priority: inside its group
  function groups.gather_job(g, group, id, number, priority, lane)
    local line, all, score = g.lines[group], g.gathered, as_text.us(number)
    local n = #all
    all[n + 1], all[n + 2] = score, id
    if priority ~= 0 then score = as_text.us(priority * groups.BAND + number) end
    if lane then
      local jobs = g.lane_lines[lane] or { group = group }
      g.lane_lines[lane] = jobs
      n = #jobs
      jobs[n + 1], jobs[n + 2] = score, id
    end
    if not line then
      g.lines[group], g.lines[#g.lines + 1] = { score, id }, group
      return
    end
    n = #line
    line[n + 1], line[n + 2] = score, id
  end

  -- A group became ready, or its first job is another one: the reason that holds the head of the queue may not hold
  -- that one (gate/wake).
  function groups.note_front(g, group)
    g.fronts = g.fronts or {}
    g.fronts[group] = true
  end

  -- Whether may_go(id) is true for the first job of such a group that is ready. ageing_ms: of the shape. gate/wake
  -- checks jobs without a group.
  function groups.any_front(g, ageing_ms, may_go)
    if not g.fronts then return false end
    if ageing_ms then
      g.ageing = g.ageing or ageing_open(g.base, { ageing_ms = tonumber(ageing_ms) }, redis_now())
      g.ageing.forget()
    end
    for group in pairs(g.fronts) do
      local id = group ~= '' and groups.head(g, group)
      if id and may_go(id) and groups.ready_tag(g, group) then return true end
    end
    return false
  end

  -- New jobs came into the line of a group that is not ready: it becomes so, unless it is held by a job before them.
  -- line: score and id of each
  function groups.came(g, group, jobs, line)
    if g.lanes then
      if not g.lanes_ready[group] then return end
      if redis.call('ZCARD', jobs) == #line / 2 then return groups.begin_line(g, group) end
      return groups.release(g, group, 'limited')
    end
    local first = redis.call('ZRANGE', jobs, 0, 0)[1]
    for i = 2, #line, 2 do
      if line[i] == first then
        if redis.call('ZCARD', jobs) == #line / 2 then groups.begin_line(g, group)
        else groups.release(g, group, 'limited') end
        return
      end
    end
  end

  -- jobs: score and id of each. A single job is added without the function that parts take.
  function groups.add_jobs(key, jobs)
    if #jobs == 2 then return redis.call('ZADD', key, jobs[1], jobs[2]) end
    groups.in_parts(jobs, function(...) redis.call('ZADD', key, ...) end)
  end

  function groups.store_gathered(g)
    local all, lines = g.gathered, g.lines
    g.gathered, g.lines = nil, nil
    groups.in_parts(all, function(...) redis.call('ZADD', g.base .. 'prioritized', ...) end)
    g.lanes_ready = {}
    for lane, jobs in pairs(g.lane_lines) do
      if groups.enter_lane(g, jobs.group, lane, jobs) then g.lanes_ready[jobs.group] = true end
    end
    groups.expect(g, lines)
    local stem, occupied = g.base .. 'meta:group:jobs:', g.occupied
    for _, group in ipairs(lines) do
      local jobs, line = stem .. group, lines[group]
      groups.add_jobs(jobs, line)
      groups.note_front(g, group)
      if occupied[group] ~= -1 then groups.came(g, group, jobs, line) end
    end
  end

  -- The group and the priority inside it in a job's options (JSON); nil if none.
  function groups.named(options)
    if not options or not string.find(options, '"group":', 1, true) then return nil end
    local group = cjson.decode(options).group
    if type(group) ~= 'table' then return nil end
    local id, priority = group.id, tonumber(group.priority)
    if type(id) == 'number' then id = string.format('%.14g', id) end
    if type(id) ~= 'string' or id == '' or #id > groups.MAX_ID then return nil end
    return id, priority and math.max(0, math.min(groups.MAX_PRIORITY, math.floor(priority)))
  end

  function groups.of_job(base, id)
    return groups.named(redis.call('HGET', base .. id, 'opts'))
  end

  -- A group has jobs again: it is ready, unless it was paused, or held for a time, before it had any.
  function groups.begin_line(g, group)
    groups.look_up_sets(g)
    local text = groups.may_have(g, 'settings') and redis.call('HGET', groups.key(g, 'settings'), group)
    local fields, now = text and cjson.decode(text).fields or {}, g.now or (text and redis_now())
    for _, hold in ipairs({ { fields.paused, 'paused' }, { fields.limited, 'limited' } }) do
      local ends = hold[1] and hold[1]['until'] and hold[1]['until'] * 1000
      if hold[1] and not (ends and ends <= now) then
        g.soonest = nil
        -- Sleeping workers do not know when it ends.
        if ends then groups.note_awaited(g) end
        groups.note_used(g, hold[2])
        return redis.call('ZADD', groups.key(g, hold[2]), ends and as_text.us(ends) or '+inf', group)
      end
    end
    groups.enter(g, group)
  end

  -- Before jobs are added to these groups: ready ones stay so, whatever is added.
  function groups.expect(g, names)
    if not groups.may_have(g, 'ready') then return end
    local ready = groups.key(g, 'ready')
    -- Reading names alone costs Redis less than reading the tag of each.
    if redis.call('ZCARD', ready) <= groups.NAMES * #names then
      for _, group in ipairs(redis.call('ZRANGE', ready, 0, -1)) do g.occupied[group] = -1 end
      return
    end
    local function tags(...) return redis.call('ZMSCORE', ready, ...) end
    groups.read_each(names, tags, function(group, tag)
      if tag then g.occupied[group] = -1 end
    end)
  end

  -- The number of a new job.
  function groups.next_number(g)
    groups.load_tags(g)
    local number = (g.seq + 1) % groups.BAND
    g.seq, g.changed = number, true
    return number
  end

  -- The number of a job that goes before the others of its priority, as in BullMQ: a stalled one, or one whose group
  -- was limited by its worker.
  function groups.first_number(g, jobs, priority)
    local from = priority * groups.BAND
    local first = redis.call('ZRANGEBYSCORE', jobs, as_text.us(from), '(' .. as_text.us(from + groups.BAND), 'WITHSCORES',
      'LIMIT', 0, 1)[2]
    return first and math.max(0, tonumber(first) - from - 1) or groups.next_number(g)
  end

  -- number: of the job, if it has one; first: whether it goes before the others of its priority; lane: nil in a queue
  -- without lanes
  function groups.insert(g, group, id, priority, number, first, lane)
    priority = priority or 0
    if g.strict then priority, first = groups.strict_place(g, group, id, priority, first) end
    if g.gathered and first then
      -- It goes before jobs that are not stored yet, too.
      groups.store_gathered(g)
      groups.insert(g, group, id, priority, number, first, lane)
      return groups.gather(g)
    end
    if g.gathered then return groups.gather_job(g, group, id, number or groups.next_number(g), priority, lane) end
    local jobs = g.base .. 'meta:group:jobs:' .. group
    if g.ageing then g.ageing.forget() end
    number = number or (first and groups.first_number(g, jobs, priority)) or groups.next_number(g)
    redis.call('ZADD', g.base .. 'prioritized', as_text.us(number), id)
    local score = as_text.us(priority * groups.BAND + number)
    redis.call('ZADD', jobs, score, id)
    if lane then
      if not groups.enter_lane(g, group, lane, { score, id }) then return end
    else
      local before = g.occupied[group]
      if before and (before < priority or (before == priority and not first)) then return end
      g.occupied[group] = priority
      -- With ageing, too, a new job is the next one only if it is before all others here.
      if redis.call('ZRANK', jobs, id) > 0 then return end
    end
    groups.note_front(g, group)
    if redis.call('ZCARD', jobs) == 1 then return groups.begin_line(g, group) end
    if not first then return groups.release(g, group, 'limited') end
    -- The current hold of the group may be the reason why this job went back.
    if redis.call('ZREM', groups.key(g, 'limited'), group) == 0 then return end
    g.soonest = nil
    groups.begin_line(g, group)
  end

  -- A waiting job was removed, if id is given. A group without jobs is in no line; it keeps its tag. lane: nil if
  -- unknown
  function groups.remove(g, group, id, lane)
    local jobs = g.base .. 'meta:group:jobs:' .. group
    if id and g.lanes then groups.leave_lane(g, group, lane, id) end
    if id and redis.call('ZREM', jobs, id) == 0 then return end
    g.occupied[group] = nil
    groups.note_front(g, group)
    if id and g.ageing then g.ageing.left(groups.line(g, group), id) end
    if redis.call('EXISTS', jobs) == 1 then
      -- Its next job may be another one, which is not held for as long.
      if id then groups.release(g, group, 'limited') end
      return
    end
    groups.load_tags(g)
    g.soonest, g.changed = nil, true
    local tag = groups.ready_tag(g, group)
    if tag then groups.leave_ready(g, group, tag) end
    for _, state in ipairs({ 'limited', 'full', 'paused', 'stale' }) do redis.call('ZREM', groups.key(g, state), group) end
  end

  -- The number of such a job, which goes before the others of its priority in its group. Jobs of one call keep the
  -- order in which they are filed, the first of them first.
  function groups.released_number(g, group, priority)
    local line = priority .. ' ' .. group
    local last = g.released[line]
    local number = last and last + 1 or groups.first_number(g, g.base .. 'meta:group:jobs:' .. group, priority) - groups.STALE
    g.released[line] = math.max(0, number)
    return g.released[line]
  end

  -- Files a job of a group that came to the head without our scripts: a retry, a promoted or stalled job, a job of a
  -- plain BullMQ producer. Returns whether it was one.
  function groups.sort_in(g, id, from)
    local group, priority, lane = groups.place_of(g, id)
    if not group then return false end
    if group ~= '' then group_later.remove(g.base, group, id) end
    local released, key = false, g.base .. id
    if from == 'wait' then
      -- BullMQ's scripts put a parent whose children have ended at the head.
      released = redis.call('EXISTS', key .. ':processed', key .. ':failed', key .. ':unsuccessful') > 0
        and redis.call('HEXISTS', key, 'ats') == 0
      redis.call('RPOP', g.base .. 'wait')
    elseif not priority then
      priority = math.floor(tonumber(redis.call('ZSCORE', g.base .. 'prioritized', id)) / groups.BAND)
    end
    groups.insert(g, group, id, priority, released and groups.released_number(g, group, priority or 0), released, lane)
    return true
  end

  -- Where the jobs of a group wait, in the form of gate/ageing-open.
  function groups.line(g, group)
    if g.lanes or group ~= '' then return { set = g.base .. 'meta:group:jobs:' .. group, from = groups.FIRST_BAND } end
    return groups.plain_line(g)
  end

  -- The same for jobs without a group, or not filed yet.
  function groups.plain_line(g)
    return { set = g.base .. 'prioritized', from = groups.BAND, list = g.base .. 'wait' }
  end

  function groups.plain_first(g)
    if g.ageing then
      local first = g.ageing.first(groups.plain_line(g))
      if first then return first.id, first.from end
      return nil
    end
    local id = not g.none_in_wait and redis.call('LINDEX', g.base .. 'wait', -1)
    if id then return id, 'wait' end
    return redis.call('ZRANGEBYSCORE', g.base .. 'prioritized', as_text.us(groups.BAND), '+inf', 'LIMIT', 0, 1)[1], 'prioritized'
  end

  -- The next job of a group; nil if none waits.
  function groups.head(g, group)
    if g.lanes then return groups.lane_head(g, group) end
    if group == '' then return (groups.plain_first(g)) end
    if g.ageing then return (g.ageing.first(groups.line(g, group)) or {}).id end
    return redis.call('ZRANGE', g.base .. 'meta:group:jobs:' .. group, 0, 0)[1]
  end

  -- The first job without a group, and where it is. Jobs of groups before it are filed, at most STALE per call: if more
  -- are there, nil, and the caller asks again.
  function groups.plain_head(g)
    while true do
      local id, from = groups.plain_first(g)
      local marker = id and string.sub(id, 1, 2) == '0:'
      if id and not marker and g.sorted >= groups.STALE then
        g.sorts_more = true
        return nil
      end
      if not id or marker or not groups.sort_in(g, id, from) then return id, from end
      g.sorted = g.sorted + 1
    end
  end

  -- The line of jobs without a group is ready as long as there are any.
  function groups.plain(g)
    if g.plain_known then return end
    g.plain_known = true
    g.plain_id, g.plain_from = groups.plain_head(g)
    if not g.plain_id or groups.ready_tag(g, '') then return end
    if not g.limits then return groups.enter(g, '') end
    if groups.may_have(g, 'limited') and redis.call('ZSCORE', groups.key(g, 'limited'), '') then
      -- Another job than the held one may go sooner.
      if g.plain_id ~= g.plain_held then groups.release(g, '', 'limited') end
    elseif not (groups.may_have(g, 'stale') and redis.call('ZSCORE', groups.key(g, 'stale'), '')) then
      groups.enter(g, '')
    end
  end

  -- A waiting job without a group was removed: its hold may not apply to the next one.
  function groups.removed_plain(g)
    if not (groups.may_have(g, 'limited') and redis.call('ZSCORE', groups.key(g, 'limited'), '')) then return end
    g.awaited = g.awaited or not groups.any(g, { 'ready' })
  end

  -- Takes a picked job out of BullMQ's set. False if another script has removed it: then it is forgotten.
  function groups.take(g, pick)
    if redis.call('ZREM', g.prioritized, pick.id) == 1 then return true end
    groups.remove(g, pick.group, pick.id, pick.lane)
    return false
  end

  function groups.put_back(g, pick)
    redis.call('ZADD', g.base .. 'prioritized', pick.number, pick.id)
  end

  -- Looks up counted jobs, others each time if there are more than VERIFIED, and calls forget(id) for missing ones.
  -- ids_from(from, most); waits(id): whether it still exists, and whether it holds a place. Returns how many of the
  -- checked jobs hold a place; second, how many are missing.
  function groups.verify(g, count, ids_from, waits, forget)
    local gone, seen, held, from = {}, 0, 0, count > groups.VERIFIED and g.now % count or 0
    for _ = 1, math.min(groups.VERIFIED, count), groups.STALE do
      for _, id in ipairs(ids_from(from, groups.STALE)) do
        local present, holds = waits(id)
        if not present then gone[#gone + 1] = id
        else
          seen = seen + 1
          if holds then held = held + 1 end
        end
      end
      from = from + groups.STALE < count and from + groups.STALE or 0
    end
    for _, id in ipairs(gone) do forget(id) end
    return seen > 0 and held / seen or 1, #gone
  end

  -- Forgets jobs in the line of a group that other scripts have removed. Returns how many were checked, and how many
  -- are missing.
  function groups.verify_line(g, group)
    local jobs = g.base .. 'meta:group:jobs:' .. group
    local line = redis.call('ZCARD', jobs)
    local _, gone = groups.verify(g, line,
      function(from, count) return redis.call('ZRANGE', jobs, from, from + count - 1) end,
      function(id) return redis.call('ZSCORE', g.prioritized, id), true end,
      function(id) groups.remove(g, group, id) end)
    return math.min(line, groups.VERIFIED), gone
  end

  -- The same for some groups, others with each call. Returns how many are missing.
  function groups.sweep(g)
    local left, all_gone = groups.SWEPT, 0
    for _, state in ipairs({ 'ready', 'limited', 'full', 'paused', 'stale' }) do
      local key = groups.key(g, state)
      local count = groups.may_have(g, state) and redis.call('ZCARD', key) or 0
      local from = count > groups.DUE and g.now % count or 0
      for _, group in ipairs(count > 0 and redis.call('ZRANGE', key, from, from + groups.DUE - 1) or {}) do
        if group ~= '' and left > 0 then
          local seen, gone = groups.verify_line(g, group)
          left, all_gone = left - seen, all_gone + gone
        end
      end
    end
    if all_gone > 0 then groups.save(g) end
    return all_gone
  end

  -- How many places the jobs of a group hold: those in its line, and those that are delayed or wait for their children.
  -- Removed jobs, and those beyond the horizon of the capacity (due, as in groups/later), only count as long as `fits`
  -- accepts that number. Second, how many are in line.
  function groups.places(g, group, fits, due)
    local base, jobs = g.base, g.base .. 'meta:group:jobs:' .. group
    local line, later = redis.call('ZCARD', jobs), group_later.count(base, group)
    if fits(line + later) then return line + later, line end
    groups.verify_line(g, group)
    local part = groups.verify(g, later, function(from, count) return group_later.ids(base, group, from, count) end,
      function(id) return group_later.waits(base, id, due) end,
      function(id) group_later.remove(base, group, id) end)
    line = redis.call('ZCARD', jobs)
    return line + math.ceil(part * group_later.count(base, group)), line
  end

  -- A job goes back to its place, as if it had not departed. number: its score in `prioritized`
  function groups.back_in(g, id, number)
    groups.left(g, id)
    local group, priority, lane = groups.place_of(g, id)
    if group then groups.insert(g, group, id, priority, tonumber(number), false, lane) end
  end

  -- A job is delayed from now on, or waits for its children ('add'); or it no longer does ('remove').
  function groups.note_later(g, id, verb)
    local group = groups.of_job(g.base, id)
    if group then group_later[verb](g.base, group, id) end
  end

  -- Extends the handlers (redis/hooked-redis) for BullMQ's scripts: jobs of groups that they put where jobs wait are
  -- filed, jobs that stop running free their places, and removed jobs leave their groups. All other commands go to the
  -- previous handler, or to `redis`. g.adding: {group, priority} of the added jobs, false for jobs without a group, nil
  -- if unknown.
  function groups.handle(g, handlers, redis)
    local call, base = redis.call, g.base
    local wait, active, prioritized = base .. 'wait', base .. 'active', base .. 'prioritized'
    local delayed, parents = base .. 'delayed', base .. 'waiting-children'
    local zadd, zrem, lrem = handlers.ZADD or call, handlers.ZREM or call, handlers.LREM or call
    local function push(command, key, id, ...)
      if key ~= wait then return call(command, key, id, ...) end
      if select('#', ...) > 0 then
        for _, each in ipairs({ id, ... }) do push(command, key, each) end
        return 1
      end
      local group, priority, lane
      -- When a job of a group is added, only a parent that it releases goes to the head.
      local released = command == 'RPUSH'
      if g.adding and not released and not g.lanes then group, priority = g.adding[1], g.adding[2]
      elseif g.adding == nil or released or g.lanes then
        group, priority, lane = groups.place_of(g, id)
        if group and group ~= '' then group_later.remove(g.base, group, id) end
      end
      if not group then
        g.plain_known = false
        return call(command, key, id)
      end
      groups.insert(g, group, id, priority, nil, command == 'RPUSH', lane)
      return 1
    end
    handlers.LPUSH, handlers.RPUSH = push, push
    function handlers.ZADD(command, key, score, id, ...)
      if key == prioritized then
        local group, priority, lane
        if g.adding ~= false or g.lanes then group, priority, lane = groups.place_of(g, id) end
        if group then
          if group == '' then priority = math.floor(tonumber(score) / groups.BAND) end
          groups.insert(g, group, id, priority, nil, tonumber(score) % groups.BAND == 0, lane)
          return 1
        end
        g.plain_known = false
      elseif key == delayed or key == parents then
        groups.note_later(g, id, 'add')
      end
      return zadd(command, key, score, id, ...)
    end
    function handlers.ZREM(command, key, ...)
      local removed = zrem(command, key, ...)
      if removed == 0 then return 0 end
      if key == prioritized then
        for _, id in ipairs({ ... }) do
          local group, _, lane = groups.place_of(g, id)
          if group then groups.remove(g, group, id, lane) else groups.removed_plain(g) end
        end
      elseif (key == delayed or key == parents) and select('#', ...) == 1 then
        groups.note_later(g, ..., 'remove')
      end
      return removed
    end
    function handlers.LREM(command, key, count, id)
      local removed = lrem(command, key, count, id)
      if key == active and removed > 0 then groups.left(g, id) end
      if key == wait and removed > 0 then groups.removed_plain(g) end
      return removed
    end
    return handlers
  end

  -- The same, for scripts that delete jobs which have not ended: together with their other keys, most often before they
  -- leave their list or set.
  function groups.handle_deletions(g, handlers, redis)
    local base, call = g.base, redis.call
    local del = handlers.DEL or call
    function handlers.DEL(command, key, part, ...)
      if not part then return del(command, key) end
      if string.sub(part, 1, #key + 1) == key .. ':' and string.sub(key, 1, #base) == base then
        local id = string.sub(key, #base + 1)
        call_state.ended[id] = call_state.ended[id] or true
        groups.left(g, id)
        local group, _, lane = groups.place_of(g, id)
        if group then
          if group ~= '' then group_later.remove(base, group, id) end
          groups.remove(g, group, id, lane)
        end
      end
      return del(command, key, part, ...)
    end
    return groups.handle(g, handlers, redis)
  end
end

return group_jobs
