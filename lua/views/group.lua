local group_later = use 'groups/later'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local group_share = use 'groups/share'
local as_text = use 'redis/as-text'
local queue_head = use 'reports/queue-head'
local holders = use 'views/holders'

-- Views of the groups of a queue. Times as in views/queue.
local view_group = {
  -- Waiting jobs that are read to find groups: the first ones, and as many spaced over all.
  SAMPLE = 100,
}

-- Number of groups with waiting jobs in each state.
function view_group.counts(base)
  local function size(name) return redis.call('ZCARD', base .. 'meta:groups:' .. name) end
  -- Jobs without a group are one group without a name.
  local unnamed = redis.call('ZSCORE', base .. 'meta:groups:ready', '') and 1 or 0
  return {
    waiting = size('ready') - unnamed, limited = size('limited') + size('stale'), maxed = size('full'), paused = size('paused'),
  }
end

-- The limit that holds the lane that goes first, as in groups/limits-of; nil if no lane does.
function view_group.first_lane_held(open)
  local g, limits = open.g, open.limits
  if not (g.lanes and limits) then return nil end
  local _, lane = g:first_waiting()
  local id = lane and select(2, g:lane_order(lane))(1)
  local place = id and g:place_in_lane(id)
  return place and limits.hold(g, place) or nil
end

-- The first of the held groups; nil if that is the jobs without a group, or if none is known.
function view_group.first_held(base)
  for _, name in ipairs({ 'limited', 'full', 'paused' }) do
    local first = redis.call('ZRANGE', base .. 'meta:groups:' .. name, 0, 0)[1]
    if first then return first ~= '' and first or nil end
  end
end

-- Common data of rows of groups. q: as views/queue opens it
function view_group.open(q)
  local g = queue_groups.open(q.base, q.shape, q.now)
  return { g = g, shape = q.shape, limits = group_limits_of(q.base, q.shape, q.now), share = group_share.call(g, q.shape, 0) }
end

-- The state of a group, and its slot or the end of its hold, µs, infinite without an end, nil if there is none.
local function state_of(g, group, s)
  if s.paused then return 'paused', s.paused end
  if s.limited then return 'limited', s.limited end
  if redis.call('ZSCORE', g:key('stale'), group) then return 'limited' end
  for _, name in ipairs({ 'ready', 'limited', 'full', 'paused' }) do
    local score = redis.call('ZSCORE', g:key(name), group)
    if score then return name, (name == 'limited' or name == 'paused') and tonumber(score) or nil end
  end
  return 'idle'
end

function view_group.row(open, group)
  local g, base = open.g, open.g.base
  local s, own = g:settings(group), redis.call('HGET', g:key('settings'), group)
  local state, ends = state_of(g, group, s)
  local row = {
    id = group, at = as_text.us(g.now), state = state, fields = own and cjson.decode(own).fields or {},
    waiting = redis.call('ZCARD', base .. 'meta:group:jobs:' .. group), delayed = group_later.count(base, group),
    active = g.tracked and redis.call('SCARD', base .. 'meta:group:held:' .. group) or nil,
    ends = ends and ends < math.huge and as_text.us(ends) or nil,
  }
  if state == 'full' then
    local lacks_common = g.counted and redis.call('ZSCORE', g:key('common'), group)
    row.maxedBy = lacks_common and 'keepFree' or s.is_strict and 'order' or 'concurrency'
  end
  local hold = state == 'limited' and not s.limited and open.limits and open.limits.cause(g, group)
  if hold then
    row.heldBy, row.heldKeys, row.closed = hold.limit, hold.keys, hold.closed
    if hold.at and hold.at > 0 then row.ends = as_text.us(hold.at) end
  end
  if open.shape.mode ~= 'off' then
    local bound = group_share.bound(g, open.share, group, 0)
    local most = bound.most(row.waiting + row.delayed)
    if most < math.huge then row.bound = { jobs = most, by = most == bound.own and 'capacity' or 'share' } end
  end
  local head = g:head(group) or g.lanes and redis.call('ZRANGE', g:line(group).set, 0, 0)[1]
  local fields = head and redis.call('HMGET', base .. head, 'timestamp', 'opts', 'processedOn')
  if fields and fields[1] then row.headReadyMs = queue_head.ready_ms(fields) end
  return row
end

-- The groups of some jobs, in their order.
function view_group.of_jobs(base, ids)
  local found = {}
  for _, id in ipairs(ids) do found[#found + 1] = queue_groups.of_job(base, id) end
  return found
end

-- The most frequent names.
function view_group.most_frequent(names, count)
  local times, all, first = {}, {}, {}
  for i, name in ipairs(names) do
    if not times[name] then all[#all + 1], first[name] = name, i end
    times[name] = (times[name] or 0) + 1
  end
  table.sort(all, function(one, other)
    if times[one] ~= times[other] then return times[one] > times[other] end
    return first[one] < first[other]
  end)
  for i = #all, count + 1, -1 do all[i] = nil end
  return all
end

-- Groups worth showing, each once: of the first jobs and of jobs spaced over all, and the held ones. Second, the list
-- in which a held one was found.
local function names_of(base, waiting, count)
  local key, names, list_of, known, spaced, first = base .. 'prioritized', {}, {}, {}, {}, {}
  local function add(group)
    if group == '' or known[group] then return end
    known[group], names[#names + 1] = true, group
  end
  local sampled = math.min(view_group.SAMPLE, waiting)
  for i = 1, sampled do
    local rank = math.floor((i - 1) * waiting / sampled)
    spaced[i] = redis.call('ZRANGE', key, rank, rank)[1]
  end
  for _, group in ipairs(view_group.of_jobs(base, redis.call('ZRANGE', key, 0, view_group.SAMPLE - 1))) do
    if #names < count then add(group) end
  end
  for _, group in ipairs(view_group.most_frequent(view_group.of_jobs(base, spaced), count)) do add(group) end
  for _, name in ipairs({ 'limited', 'full', 'paused' }) do
    for _, group in ipairs(redis.call('ZRANGE', base .. 'meta:groups:' .. name, 0, count - 1)) do
      list_of[group] = name
      add(group)
    end
  end
  return names, list_of
end

-- Waiting jobs of all groups.
function view_group.waiting(base)
  return redis.call('ZCOUNT', base .. 'prioritized', '-inf', '(' .. as_text.us(queue_groups.BAND))
end

-- The groups worth showing; `count` of each kind. Nil for a queue without groups.
function view_group.of_queue(q, count)
  if not q.shape or not q.shape.groups then return nil end
  local view = {
    at = as_text.us(q.now), groups = q.shape.groups, counts = view_group.counts(q.base), waiting = view_group.waiting(q.base),
    rows = {},
  }
  local names, list_of = names_of(q.base, view.waiting, count)
  local open = view_group.open(q)
  for _, group in ipairs(names) do
    local row = view_group.row(open, group)
    row.list = list_of[group]
    if row.waiting > 0 then view.rows[#view.rows + 1] = row end
  end
  return view
end

-- One group. count: of its first waiting jobs, whose ids it has then, and the holders of its places if all are taken
function view_group.of_one(q, group, count)
  if not q.shape or not q.shape.groups then return nil end
  local row = view_group.row(view_group.open(q), group)
  return {
    groups = q.shape.groups, waiting = view_group.waiting(q.base), row = row,
    jobs = (count or 0) > 0 and redis.call('ZRANGE', q.base .. 'meta:group:jobs:' .. group, 0, count - 1) or {},
    holders = count and row.state == 'full' and holders.of_group(q, group) or {},
  }
end

-- All settings of groups, as stored.
function view_group.settings(q)
  local settings, flat = {}, redis.call('HGETALL', q.base .. 'meta:groups:settings')
  for i = 1, #flat, 2 do settings[flat[i]] = flat[i + 1] end
  return { at = as_text.us(q.now), settings = settings }
end

return view_group
