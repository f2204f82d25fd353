local lane_keys = use 'groups/lane-keys'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- Lanes: in a queue whose limits have keys (`by`, limits/queue-limits), the jobs of a group with equal values of all
-- these keys share a lane. A limit that holds one of them holds all of them, and no other lane. Groups take turns, and
-- in a turn of a group its lanes do: each goes behind the others after a departure. Adds these functions to the table
-- of groups/queue-groups. Such a queue files all jobs: those without a group are in the group ''.
--   meta:group:lanes:<group>   sorted set of its lanes that no limit holds -> rank: the priority of the first job *
--                              2^32 + the number of its turn; where jobs age, the key of the first job
--                              (gate/ageing-open)
--   meta:lane:jobs:<lane>      sorted set of its jobs, as meta:group:jobs:<group>, which has them too
--   meta:lanes                 hash: sorted (1 once all new jobs are filed into lanes), unsorted (1 if some older ones
--                              are in none), lined (1 if a lane waits in a line: groups/lines), verified (when holders
--                              of places were last checked, µs: groups/lines)
--   meta:lanes:unsorted        group -> the score of the last of its older jobs that is in a lane
-- g.lanes is what separates them, as shape/shapes stores it: {names of keys, units}, the last first; nil for a queue
-- without lanes.
-- NO_SETTINGS is for jobs without a group.
local NO_SETTINGS = { weight = 1 }
-- At most this many lanes of a group are read to count its jobs.
local READ = 4

local function group_lanes(groups)
  function groups.open_lanes(g, shape)
    if not (shape and shape.lanes) then return end
    local f = redis.call('HMGET', g.base .. 'meta:lanes', 'sorted', 'lined', 'unsorted', 'verified')
    g.lanes, g.sorts_new, g.lined, g.unsorted = shape.lanes, f[1] and true or false, f[2] and true or false, f[3] and true or false
    g.verified = tonumber(f[4]) or 0
    g.tries, g.lines_read, g.tickets, g.lines_changed, g.tickets_changed = 0, {}, {}, {}, {}
  end

  local function netstring(text)
    return #text .. ':' .. text
  end

  -- The lane of a job: its group, then the names and values of its keys, each after its length, then units of which the
  -- job takes nothing: it waits for no limit in these.
  local function lane_of(group, keys, costs, by)
    local parts = { netstring(group) }
    for _, name in ipairs(by[1]) do
      local value = keys and keys[name]
      if value then
        parts[#parts + 1] = netstring(name)
        parts[#parts + 1] = netstring(value)
      end
    end
    for _, unit in ipairs(by[2]) do
      if costs and costs[unit] == 0 then parts[#parts + 1] = '~' .. netstring(unit) end
    end
    return table.concat(parts)
  end

  -- A group in strict order is one lane.
  local function own_lane(g, group, keys, costs)
    return groups.is_strict(g, group) and netstring(group) or lane_of(group, keys, costs, g.lanes[1])
  end

  function groups.group_of_lane(lane)
    local length = string.match(lane, '^%d+')
    return string.sub(lane, #length + 2, #length + 1 + length)
  end

  local function lane_jobs(g, lane)
    return g.base .. 'meta:lane:jobs:' .. lane
  end

  local function lanes_of(g, group)
    return g.base .. 'meta:group:lanes:' .. group
  end

  -- Where a job waits: its group, nil if it has none and the queue has no lanes; its priority inside that group, nil if
  -- it names none; its lane; its keys.
  function groups.place_of(g, id)
    if not g.lanes then return groups.of_job(g.base, id) end
    local job = redis.call('HMGET', g.base .. id, 'opts', 'priority')
    local group, priority = groups.named(job[1])
    if not group then priority = tonumber(job[2]) end
    local _, costs, _, keys = job_options.cost(job[1])
    return group or '', priority, own_lane(g, group or '', keys, costs), keys
  end

  -- How many other lanes of a group no limit holds.
  local function others_ready(g, group, lane)
    local key = lanes_of(g, group)
    return redis.call('ZCARD', key) - (redis.call('ZSCORE', key, lane) and 1 or 0)
  end

  -- The position of a waiting job among the lanes of its group: its group, lane and keys, how many jobs of the lane are
  -- before it (n), and how many jobs of its group at most depart before it: one of each lane that no limit holds, for
  -- each of these. For a lane that waits in a line (waits) only its own jobs are known to. Nil if it is in no lane.
  function groups.place_in_lane(g, id)
    local group, _, lane, keys = groups.place_of(g, id)
    local n = redis.call('ZRANK', lane_jobs(g, lane), id)
    if not n then return nil end
    local place = { group = group, lane = lane, keys = keys, n = n, waits = groups.waits_in_line(g, lane), before = n }
    if place.waits then return place end
    local others = others_ready(g, group, lane)
    place.before = math.min(redis.call('ZRANK', g.base .. 'meta:group:jobs:' .. group, id) or 0, n + others * (n + 1))
    return place
  end

  -- How many of the waiting jobs of a group are in lanes that no limit holds. With more than READ such lanes, the
  -- others are assumed to be like the first.
  function groups.in_ready_lanes(g, group, stored)
    if not g.lined then return stored end
    local lanes, jobs = redis.call('ZCARD', lanes_of(g, group)), 0
    local first = redis.call('ZRANGE', lanes_of(g, group), 0, READ - 1)
    for _, lane in ipairs(first) do jobs = jobs + redis.call('ZCARD', lane_jobs(g, lane)) end
    return math.min(stored, lanes > READ and math.floor(jobs * lanes / READ) or jobs)
  end

  -- As place_in_lane, for a new job: `comes` is its cost, and its costs in units. options: of the job, packed as
  -- BullMQ's scripts get them; first: whether it goes before the others of its lane
  function groups.place_of_new(g, group, priority, options, first)
    local cost, costs, _, keys = job_options.cost(cjson.encode(cmsgpack.unpack(options)))
    local lane = own_lane(g, group, keys, costs)
    local last = '(' .. as_text.us((priority + 1) * groups.BAND)
    local n = first and 0 or redis.call('ZCOUNT', lane_jobs(g, lane), '-inf', last)
    local place = {
      group = group, lane = lane, keys = keys, n = n, waits = groups.waits_in_line(g, lane), before = n,
      comes = { cost = cost, costs = costs },
    }
    if place.waits or first then return place end
    -- At least one of each other lane that no limit holds has its turn before it.
    place.before = n + others_ready(g, group, lane)
    return place
  end

  -- How many jobs of a group depart at most before a new one that is the first of its lane.
  function groups.before_new(g, group, stored)
    return math.min(stored, redis.call('ZCARD', lanes_of(g, group)))
  end

  -- The jobs of a lane in their order, as group_schedule.jobs returns those of a group.
  function groups.lane_order(g, lane)
    local key = lane_jobs(g, lane)
    if g.ageing then return redis.call('ZCARD', key), g.ageing.order({ set = key, from = groups.FIRST_BAND }) end
    return redis.call('ZCARD', key), function(n) return redis.call('ZRANGE', key, n - 1, n - 1)[1] end
  end

  -- The rank of a lane by its first job. number: of the turn
  local function rank_of(g, lane, score, number)
    if g.ageing then return g.ageing.first({ set = lane_jobs(g, lane), from = groups.FIRST_BAND }).key end
    return math.floor(tonumber(score) / groups.BAND) * groups.BAND + number % groups.BAND
  end

  -- A lane whose first job is not known to be held by a limit.
  local function line_up(g, group, lane, rank)
    redis.call('ZADD', lanes_of(g, group), as_text.us(rank), lane)
  end

  -- A lane has another first job, with this score. Returns whether it is ready.
  local function first_changed(g, group, lane, score)
    local before = g.lined and groups.rank_held(g, lane) or redis.call('ZSCORE', lanes_of(g, group), lane) or score
    local rank = rank_of(g, lane, score, tonumber(before))
    -- In a lane of jobs with different keys, or jobs added under other limits, the next one may wait for something
    -- else.
    if g.lined and (g.lanes[2] or groups.is_strict(g, group)) then groups.leave_line(g, lane)
    elseif g.lined and groups.try_again(g, lane, rank) then return false end
    line_up(g, group, lane, rank)
    return true
  end

  -- Jobs came into a lane. jobs: score and id of each. Returns whether the lane has another first job, and is ready.
  function groups.enter_lane(g, group, lane, jobs)
    groups.begin_lanes(g)
    local key = lane_jobs(g, lane)
    groups.add_jobs(key, jobs)
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    for i = 2, #jobs, 2 do
      if jobs[i] == first[1] then return first_changed(g, group, lane, first[2]) end
    end
    return false
  end

  -- Removes a waiting job from its lane, which may be one of other limits. Returns the lane; nil if it is in none.
  local function take_out(g, group, lane, id)
    if lane and redis.call('ZREM', lane_jobs(g, lane), id) == 1 then return lane end
    if lane and not (g.lanes[2] or g.strict) then return nil end
    local _, costs, _, keys = job_options.cost(redis.call('HGET', g.base .. id, 'opts'))
    for _, by in ipairs(g.lanes) do
      lane = lane_of(group, keys, costs, by)
      if redis.call('ZREM', lane_jobs(g, lane), id) == 1 then return lane end
    end
    if g.strict and redis.call('ZREM', lane_jobs(g, netstring(group)), id) == 1 then return netstring(group) end
  end

  -- A waiting job was removed from its lane. lane: nil if unknown
  function groups.leave_lane(g, group, lane, id)
    lane = take_out(g, group, lane, id)
    if not lane then return end
    if g.ageing then g.ageing.forget() end
    local key = lane_jobs(g, lane)
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[1] then
      first_changed(g, group, lane, first[2])
      return
    end
    redis.call('ZREM', lanes_of(g, group), lane)
    if g.lined then groups.leave_line(g, lane) end
  end

  -- The job of a lane has departed, with the tag that its group has now. runs: as in groups.served
  function groups.lane_served(g, pick, tag, runs)
    local group, lane = pick.group, pick.lane
    redis.call('ZREM', lane_jobs(g, lane), pick.id)
    if g.ageing then g.ageing.left({ set = lane_jobs(g, lane) }, pick.id) end
    if runs and pick.parts then groups.cells_served(g, pick)
    elseif g.lined and not groups.limits_apply(g) then groups.leave_line(g, lane) end
    if pick.following then
      line_up(g, group, lane, rank_of(g, lane, pick.following_score, groups.next_number(g)))
      return groups.move(g, group, tag)
    end
    redis.call('ZREM', lanes_of(g, group), lane)
    if g.lined then groups.leave_line(g, lane) end
    if redis.call('EXISTS', lanes_of(g, group)) == 1 then return groups.move(g, group, tag) end
    groups.no_lane(g, group, tag)
  end

  -- A lane is ready again, at its rank; and its group, if that waited for its lanes alone (waits).
  function groups.lane_ready(g, group, lane, rank, waits)
    redis.call('ZADD', lanes_of(g, group), rank, lane)
    if waits then groups.release(g, group, 'limited') end
  end

  -- Whether a group has jobs, but no lane that is ready.
  function groups.waits_for_lanes(g, group)
    local limited = groups.may_have(g, 'limited') and redis.call('ZSCORE', groups.key(g, 'limited'), group)
    return limited and tonumber(limited) == math.huge
  end

  -- The job of a group that may depart by `by`, from the first lane that no limit holds. Nil if there is none, or if
  -- the group is held as a whole; then it is not ready. As groups.try
  function groups.try_lanes(g, group, tag, by)
    local s = group == '' and NO_SETTINGS or groups.settings_next(g, group)
    if s.paused then return groups.hold_as_set(g, group, tag, s) end
    local full = group ~= '' and g.enforced and groups.is_full(g, group, s.concurrency)
    local waits = false
    repeat
      local lane = groups.first_lane(g, group)
      if not lane and not groups.sort_lanes(g, group) then return groups.no_lane(g, group, tag, waits) end
      g.tries = g.tries + 1
      local pick = lane and groups.lane_pick(g, group, tag, lane)
      local found = pick and groups.try_lane(g, pick, s, full, by)
      if found ~= false and pick then return found end
      waits = waits or found == false
    until g.tries >= groups.TRIES
  end

  -- None of its lanes is ready. waits: whether one is known to wait in a line
  function groups.no_lane(g, group, tag, waits)
    local has_jobs = waits or redis.call('EXISTS', g.base .. 'meta:group:jobs:' .. group) == 1
    if not has_jobs then return groups.leave_ready(g, group, tag) end
    return groups.hold_back(g, group, tag, 'limited', '+inf')
  end

  -- False if its lane has to wait, nil if its group has to, else the pick.
  function groups.try_lane(g, pick, s, full, by)
    local group, tag = pick.group, pick.tag
    pick.weight = s.weight
    -- In a lane of one kind, all jobs have the same keys.
    local known = not (g.lanes[2] or s.is_strict) and lane_keys(pick.lane) or nil
    local cost, deferred, costs, deadline, keys = job_options.cost_of_job(g.base .. pick.id, known)
    pick.cost, pick.deferred, pick.costs, pick.deadline = cost, deferred, costs, deadline
    local runs = groups.runs(g, deferred, deadline)
    local paced = runs and g.enforced
    if full and s.is_strict then full = not groups.goes_on(g, group, pick.id) end
    if full and (runs or s.is_strict) then return groups.hold_full(g, group, tag, full) end
    pick.is_strict, pick.is_paced = s.is_strict, s.is_paced
    pick.bucket = paced and groups.bucket(g, group, s) or nil
    pick.hold = runs and s.limited or nil
    pick.slot = math.max(pick.bucket and groups.slot(g, pick.bucket, cost) or 0, pick.hold or 0)
    local own, least = pick.slot, 0
    if paced and g.limits then
      pick.parts = g.limits.open(group, keys, known)
      local slot, _, without_places = g.limits.slot(pick.parts, cost, costs)
      pick.slot, least = math.max(own, slot), without_places
    end
    -- A job that cannot start in time is failed at once: no other must wait for its slot.
    if deadline and math.max(own, least) > deadline then return pick end
    if own > by then return groups.hold_back(g, group, tag, 'limited', as_text.us(own)) end
    return (not pick.parts or groups.may_pass(g, pick, by)) and pick
  end

  -- A group is held as a whole: its lanes that were let go give up their places, for others that wait for the same.
  function groups.let_others_pass(g, group)
    for _, lane in ipairs(redis.call('ZRANGE', lanes_of(g, group), 0, groups.DUE - 1)) do groups.leave_line(g, lane) end
  end

  -- A lane has to wait. Returns its rank, for when it is ready again.
  function groups.lane_held(g, group, lane)
    local rank = redis.call('ZSCORE', lanes_of(g, group), lane)
    redis.call('ZREM', lanes_of(g, group), lane)
    return rank
  end

  -- The lane of a group whose turn it is; nil if none is ready.
  function groups.first_lane(g, group)
    return redis.call('ZRANGE', lanes_of(g, group), '0', '0')[1]
  end

  -- The first job of that lane; nil if there is none.
  function groups.lane_head(g, group)
    local lane = groups.first_lane(g, group)
    if not lane then return nil end
    if g.ageing then return (g.ageing.first({ set = lane_jobs(g, lane), from = groups.FIRST_BAND }) or {}).id end
    return redis.call('ZRANGE', lane_jobs(g, lane), 0, 0)[1]
  end

  -- The first job of a lane and the one after it, in the form of a pick; nil if the lane has none.
  function groups.lane_pick(g, group, tag, lane)
    local key = lane_jobs(g, lane)
    local heads = g.ageing and g.ageing.first_two(key) or redis.call('ZRANGE', key, '0', '1', 'WITHSCORES')
    local id = heads[1]
    if not id then
      redis.call('ZREM', lanes_of(g, group), lane)
      return nil
    end
    -- With most fields from the beginning, the table does not grow.
    return {
      weight = 1, cost = 1, deferred = false, is_strict = false, is_paced = false, hold = nil, bucket = nil, parts = nil,
      group = group, id = id, number = as_text.us(tonumber(heads[2]) % groups.BAND), from = 'group', tag = tag, slot = 0,
      jobs = g.base .. 'meta:group:jobs:' .. group, lane = lane, following = heads[3], following_score = heads[4],
    }
  end

  -- When a queue gets its first lanes, its groups may have jobs in none. Called before a job enters a lane or is
  -- chosen.
  function groups.begin_lanes(g)
    if g.sorts_new then return end
    g.sorts_new = true
    if redis.call('HEXISTS', g.base .. 'meta:lanes', 'sorted') == 1 then return end
    local key, sets = g.base .. 'meta:lanes:unsorted', {}
    redis.call('HSET', g.base .. 'meta:lanes', 'sorted', 1)
    for _, state in ipairs({ 'ready', 'limited', 'full', 'paused', 'stale' }) do
      if groups.may_have(g, state) then sets[#sets + 1] = groups.key(g, state) end
    end
    if #sets == 0 or redis.call('ZUNIONSTORE', key, #sets, unpack(sets)) == 0 then return end
    redis.call('ZUNIONSTORE', key, 1, key, 'WEIGHTS', 0)
    redis.call('HSET', g.base .. 'meta:lanes', 'unsorted', 1)
    g.unsorted = true
  end

  -- Files some older jobs of a group into lanes. Returns whether there were some.
  function groups.sort_lanes(g, group)
    local unsorted = g.base .. 'meta:lanes:unsorted'
    local from = g.unsorted and redis.call('ZSCORE', unsorted, group)
    if not from then return false end
    local after = from == '0' and '-inf' or '(' .. as_text.us(tonumber(from))
    local found = redis.call('ZRANGEBYSCORE', g.base .. 'meta:group:jobs:' .. group, after, '+inf', 'WITHSCORES', 'LIMIT', 0,
      groups.STALE)
    for i = 1, #found, 2 do
      local _, _, lane = groups.place_of(g, found[i])
      groups.enter_lane(g, group, lane, { found[i + 1], found[i] })
    end
    if #found == 2 * groups.STALE then
      redis.call('ZADD', unsorted, found[#found], group)
    else
      redis.call('ZREM', unsorted, group)
      g.unsorted = redis.call('EXISTS', unsorted) == 1
      if not g.unsorted then redis.call('HDEL', g.base .. 'meta:lanes', 'unsorted') end
    end
    return #found > 0
  end
end

return group_lanes
