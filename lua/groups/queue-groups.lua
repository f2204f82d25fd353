local ageing_open = use 'gate/ageing-open'
local group_jobs = use 'groups/jobs'
local group_lanes = use 'groups/lanes'
local group_lines = use 'groups/lines'
local group_pace = use 'groups/pace'
local group_places = use 'groups/places'
local group_rules = use 'groups/rules'
local group_running = use 'groups/running'
local group_strict = use 'groups/strict'
local own_values = use 'limits/own-values'
local scheduled_bucket = use 'limits/scheduled-bucket'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'
local job_options = use 'shape/job-options'
local shapes = use 'shape/shapes'

-- Groups: jobs of one queue that share a key (a tenant, a domain), each group with a rate, a limit on running jobs, a
-- weight and a pause of its own. Start-time fair queueing decides which group is next (Goyal, Vin, Cheng 1996:
-- "Start-Time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks"): each group has
-- a start tag, the lowest departs, the virtual time V becomes its tag, and its next tag is that plus cost / weight. The
-- tags of groups without waiting jobs, and of held groups, are kept until V has passed them: otherwise a group that
-- always has one job waiting would be served after each of its departures. Groups that come later than V are in line in
-- order of arrival, whatever their names: each gets a tag just above the last one's.
--   meta:groups                hash: v (virtual time), t (the last tag of a new group), seq (number of the last job),
--                              tracked (1 once running jobs are recorded), at (when the current defaults and rules began,
--                              µs, and which limits they include), seen (Redis's time, µs), back (how far it has gone back so
--                              far, µs), filled (until when buckets are full after a loss of state, µs), plain (the job
--                              without a group that limits per group held last), none-<set> (1 if that set is certainly
--                              empty: then it is not read), search (if one call cannot search all groups, the tag from
--                              which the next one searches for groups that pass the held head, and since when, µs),
--                              counted (1 once groups with running jobs are recorded), places (of the queue, at the
--                              last check of groups at their limit on running jobs), paces (1 while rates of groups
--                              rise: groups/pace)
--   meta:groups:ready          sorted set, group -> tag. A group with waiting jobs is in exactly one of these four
--   meta:groups:limited        group -> its next slot, µs. After a change of the defaults, meta:groups:stale has those
--                              that must be checked again
--   meta:groups:full           group -> since when its limit on running jobs has been reached, or was last checked, µs
--   meta:groups:paused         group -> until when, µs, or +inf
--   meta:groups:tags           group -> tag, of groups that are not ready, if it is above V
--   meta:groups:settings       hash, group -> JSON: fields: field -> { value, by, reason, at, until? } (ms), at: of the
--                              last change, µs. The value of `paused` and of `limited` (until a time) is true. From
--                              feedback, until a time: `slowed` (a bound of its rate) and `crowded` (a bound of its
--                              running jobs); `paced`, the rate that `adapt` found (groups/pace). `ramp`: since when
--                              its rate rises after a pause, ms (shape/ramp)
--   meta:groups:ends           group -> when its next temporary setting ends, µs
--   meta:groups:changed        group -> when one of its settings ended, µs; for an hour
--   meta:groups:held           hash, running job -> group; in strict order (groups/strict) also jobs that will run
--                              again
--   meta:groups:running        set of the groups with running jobs, and meta:groups:common, group -> tag of those that
--                              lack a place besides their first one, in a queue with `keepFree` (groups/running)
--   meta:groups:later          jobs that hold places, but are in no line (groups/later)
--   meta:group:jobs:<group>    sorted set of its waiting jobs: priority * 2^32 + the number of the job; -1 is the
--                              priority of those that go first in strict order
--   meta:group:held:<group>    set of its running jobs
--   meta:group:bucket:<group>  its bucket: origin (µs), tat (since then), interval, burst, ':' and the name of the
--                              schedule of the rate, if it has one, `back` when it was stored and, if the origin was
--                              past, when that was; the last slot is the origin. It expires when the bucket is empty
-- A waiting job of a group is a member of BullMQ's `prioritized` with its number as score, below those of priority 1:
-- stock workers and tools see an ordinary job. Jobs without a group are one group, named ''.
local groups = {
  -- The unit of priorities in BullMQ's scores.
  BAND = 4294967296,
  -- Tags are whole numbers: UNIT for a cost of 1 and a weight of 1. Redis is slow with fractions in small sets.
  UNIT = 1048576,
  -- At most this many groups become ready, are tried for one job, or are verified by one call.
  DUE = 16, TRIES = 64, STALE = 100,
  -- At most VERIFIED jobs of a group are verified before it is found full, and about SWEPT of all by a report.
  VERIFIED = 200, SWEPT = 400,
  -- How often a group at its limit on running jobs is verified, µs.
  VERIFY_US = 1000000,
  -- How long a group's last rate change is remembered, µs.
  CHANGED_US = 3600000000,
  MAX_PRIORITY = 2097152, MAX_ID = 256,
  -- Numbers begin after this one: jobs may go before the first of them.
  FIRST = 1048576,
  -- For jobs of some groups, the names of all ready groups are read if there are at most this many times as many.
  NAMES = 4,
  -- The sets that are often empty: meta:groups records which of them had no members at the last check, and have got
  -- none since.
  SETS = { 'ready', 'limited', 'full', 'paused', 'stale', 'tags', 'settings' },
}

function groups.key(g, name)
  return g.base .. 'meta:groups:' .. name
end

-- shape: one that has groups
function groups.open(base, shape, now)
  local f = redis.call('HMGET', base .. 'meta:groups', 'v', 't', 'tracked', 'at', 'seen', 'back', 'filled', 'seq',
    'plain', 'counted', 'places', 'paces', 'none-ready', 'none-limited', 'none-full', 'none-paused', 'none-stale', 'none-tags', 'none-settings')
  local g = setmetatable({
    base = base, prioritized = base .. 'prioritized', now = now, v = tonumber(f[1]) or 0, t = tonumber(f[2]) or 0, tracked = f[3] == '1',
    given = cjson.decode(shape.groups), changed_at = shape.groups_at, rules_at = shape.rules_at, enforced = shape.mode == 'enforce', known = {},
    applied_at = f[4], back = tonumber(f[6]) or 0, filled = tonumber(f[7]) or 0, seq = tonumber(f[8]) or groups.FIRST,
    plain_held = f[9], counted = f[10] == '1', places_seen = f[11], paces = f[12] and true or false, sorted = 0, occupied = {}, moved = {}, begun = {}, ended = {}, kept_ms = {}, most = 1, released = {},
    together = true, strict = shape.whole_groups, ramp_up = shape.ramp_up, ageing = ageing_open(base, shape, now),
    has_places = shape.has_places, own_limits = shape.own_limits, places_taken = {}, places_ended = {}, rested = {},
  }, { __index = groups })
  -- The declared rate that follows an override, for bucket.kept_us.
  g.lowest = shape.follows and shape.follows['']
  -- The rates of the defaults so far (shape/group-rates), and until when they are unknown, µs.
  g.rates = shape.group_rates or { { at = shape.groups_at, rate = g.given.rate, burst = g.given.burst } }
  g.unknown_until = shape.group_rates and shape.group_rates[1].at or 0
  g.defaults = groups.fields(g, g.given)
  groups.note_times(g, g.defaults, {}, -1, {})
  g.rests = g.enforced and g.ramp_up and g.ramp_up.afterIdleMs
  groups.note_hints(g, f, 12)
  groups.open_lanes(g, shape)
  local seen = tonumber(f[5]) or now
  if now < seen then
    -- Redis's clock has gone back: distances in time are kept.
    g.back, g.filled, g.changed, g.reset, g.applied_at = g.back + seen - now, g.filled - (seen - now), true, true, false
    g.stepped = true
  end
  return g
end

-- Nil if the queue has no groups. shape: as it is, nil without one
function groups.of(base, shape, now)
  return shape and shape.groups and groups.open(base, shape, now) or nil
end

-- f: of meta:groups, with the marks of empty sets after the first `before`
function groups.note_hints(g, f, before)
  local used, known = {}, false
  for i, name in ipairs(groups.SETS) do
    local none = f[before + i] and true or false
    used[name], known = not none, known or none
  end
  call_state.in_use[g.base], g.has_settings, g.unknown = used, used.settings, not known
end

-- In a new queue, nothing is known about its sets. Called before changes in them.
function groups.look_up_sets(g)
  if not g.unknown then return end
  g.unknown = false
  for _, name in ipairs(groups.SETS) do
    if redis.call('EXISTS', groups.key(g, name)) == 0 then groups.note_unused(g, name) end
  end
  g.has_settings = groups.may_have(g, 'settings')
end

-- Whether a set may have members: reading an empty one is a keyspace miss, for which users have alarms.
function groups.may_have(g, name)
  local used = call_state.in_use[g.base]
  return not used or used[name]
end

-- Whether one of these sets has members.
function groups.any(g, names)
  local keys = {}
  for _, name in ipairs(names) do
    if groups.may_have(g, name) then keys[#keys + 1] = groups.key(g, name) end
  end
  return #keys > 0 and redis.call('EXISTS', unpack(keys)) > 0
end

-- Called before a set gets a member.
function groups.note_used(g, name)
  local used = call_state.in_use[g.base]
  if used and used[name] then return end
  if used then used[name] = true end
  redis.call('HDEL', g.base .. 'meta:groups', 'none-' .. name)
end

-- A set was found empty.
function groups.note_unused(g, name)
  local used = call_state.in_use[g.base]
  if not used or not used[name] then return end
  used[name] = false
  redis.call('HSET', g.base .. 'meta:groups', 'none-' .. name, 1)
end

-- Whether jobs may wait although no group is ready.
function groups.may_wait(g)
  if g.plain_id then return true end
  for _, name in ipairs({ 'limited', 'full', 'paused', 'stale' }) do
    if groups.may_have(g, name) then return true end
  end
  return false
end

-- For scripts that only note the end of a job. shape: of a queue with lanes, or groups in strict order
function groups.bare(base, shape)
  if shape and shape.whole_groups then return groups.open(base, shape, redis_now()) end
  local g = setmetatable({
    base = base, occupied = {}, moved = {}, begun = {}, ended = {}, has_places = shape and shape.has_places,
    places_taken = {}, places_ended = {},
  }, { __index = groups })
  groups.open_lanes(g, shape)
  if g.lanes then g.ageing = ageing_open(base, shape, redis_now()) end
  return g
end

function groups.load_tags(g)
  if g.v then return end
  local f = redis.call('HMGET', g.base .. 'meta:groups', 'v', 't', 'seq', 'none-ready', 'none-limited', 'none-full',
    'none-paused', 'none-stale', 'none-tags', 'none-settings')
  g.v, g.t, g.seq = tonumber(f[1]) or 0, tonumber(f[2]) or 0, tonumber(f[3]) or groups.FIRST
  groups.note_hints(g, f, 3)
end

-- Calls send with the arguments of a command in parts: Lua has room for some thousand.
function groups.in_parts(args, send)
  for i = 1, #args, 1000 do send(unpack(args, i, math.min(#args, i + 999))) end
end

-- Calls found(name, value) for each of the names. read: returns the values of many, false for none
function groups.read_each(names, read, found)
  local before = 0
  groups.in_parts(names, function(...)
    for i, value in ipairs(read(...)) do found(names[before + i], value) end
    before = before + select('#', ...)
  end)
end

-- Stores the tags of the served groups, by one command for all of them.
function groups.store_tags(g)
  if not next(g.moved) then return end
  local args = {}
  for group, tag in pairs(g.moved) do
    args[#args + 1] = tag
    args[#args + 1] = group
  end
  g.moved = {}
  local ready = groups.key(g, 'ready')
  groups.in_parts(args, function(...) redis.call('ZADD', ready, ...) end)
end

function groups.save(g)
  groups.store_tags(g)
  if g.gathered then groups.store_gathered(g) end
  if g.lanes then groups.save_lines(g) end
  groups.store_running(g)
  groups.save_places(g)
  if not g.changed then return end
  -- The end of a busy period: no tag is above V any more.
  if not groups.any(g, { 'ready', 'limited', 'full', 'paused', 'stale' }) then
    redis.call('DEL', groups.key(g, 'tags'))
    for _, name in ipairs({ 'ready', 'limited', 'full', 'paused', 'stale', 'tags' }) do groups.note_unused(g, name) end
    g.v, g.t = 0, 0
  end
  local key = g.base .. 'meta:groups'
  local v, t, seq = as_text.us(g.v), as_text.us(g.t), as_text.us(g.seq)
  if g.now then
    redis.call('HSET', key, 'v', v, 't', t, 'seq', seq, 'seen', as_text.us(g.now))
    if g.reset then redis.call('HSET', key, 'back', as_text.us(g.back), 'filled', as_text.us(g.filled)) end
    -- No later call would notice: the next one that chooses a job has to check the held groups again.
    if g.stepped and not g.began then redis.call('HDEL', key, 'at') end
  else
    redis.call('HSET', key, 'v', v, 't', t, 'seq', seq)
  end
  g.changed = false
end

-- g.none_in_wait: whether BullMQ's wait list is known to be empty.

-- g.awaited: whether no group was ready before, so that workers may sleep.
function groups.note_awaited(g)
  if g.awaited == nil then g.awaited = not groups.any(g, { 'ready' }) end
end

-- A group that has waiting jobs and is not held takes its place among the others.
function groups.enter(g, group)
  groups.load_tags(g)
  groups.look_up_sets(g)
  groups.note_awaited(g)
  local kept = groups.may_have(g, 'tags') and redis.call('ZSCORE', groups.key(g, 'tags'), group)
  local tag = tonumber(kept or nil)
  if tag then redis.call('ZREM', groups.key(g, 'tags'), group) end
  if not tag or tag <= g.v then
    tag = math.max(g.v, g.t) + 1
    g.t = tag
  end
  groups.note_used(g, 'ready')
  redis.call('ZADD', groups.key(g, 'ready'), as_text.us(tag), group)
  groups.line_up(g, group, tag)
  groups.note_front(g, group)
  g.changed = true
  return tag
end

-- The ready groups with the least tags are read `most` at a time: g.names and g.tags, from g.at on. g.all: whether these
-- are all that there are.

-- A group takes its place among those that were read, unless it is behind them. With equal tags Redis decides.
function groups.line_up(g, group, tag)
  if not g.names then return end
  local tags, at = g.tags, #g.tags
  if not g.all and (at < g.at or tag > tags[at]) then return end
  while at >= g.at and tags[at] > tag do at = at - 1 end
  if tags[at] == tag then
    g.names = nil
    return
  end
  table.insert(tags, at + 1, tag)
  table.insert(g.names, at + 1, group)
end

-- A group is no longer ready, or has another tag.
function groups.step_out(g, group)
  g.moved[group] = nil
  if not g.names then return end
  if g.names[g.at] == group then g.at = g.at + 1 else g.names = nil end
end

-- The ready group with the least tag, and that tag; nil if none is ready.
function groups.first_ready(g)
  if not g.names or (g.at > #g.names and not g.all) then
    groups.store_tags(g)
    local any = groups.may_have(g, 'ready')
    local rows = any and redis.call('ZRANGE', groups.key(g, 'ready'), 0, g.most - 1, 'WITHSCORES') or {}
    g.names, g.tags, g.at, g.all = {}, {}, 1, #rows < 2 * g.most
    for i = 1, #rows, 2 do
      local n = #g.names + 1
      g.names[n], g.tags[n] = rows[i], tonumber(rows[i + 1])
    end
  end
  return g.names[g.at], g.tags[g.at]
end

-- The ready group whose turn it is, and its tag; nil if none is ready.
function groups.next_in_line(g)
  local plain = g.defaults.ungrouped == 'first' and groups.ready_tag(g, '')
  if plain and groups.head(g, '') then return '', plain end
  return groups.first_ready(g)
end

-- The tag of a group; nil if it is not ready.
function groups.ready_tag(g, group)
  if g.moved[group] or not groups.may_have(g, 'ready') then return g.moved[group] end
  return tonumber(redis.call('ZSCORE', groups.key(g, 'ready'), group) or nil)
end

-- The group stays ready, with another tag.
function groups.move(g, group, tag)
  groups.step_out(g, group)
  groups.line_up(g, group, tag)
  g.moved[group] = tag
end

-- Takes a group out of the ready ones; it keeps its tag.
function groups.leave_ready(g, group, tag)
  groups.step_out(g, group)
  redis.call('ZREM', groups.key(g, 'ready'), group)
  if tag > g.v then
    groups.note_used(g, 'tags')
    redis.call('ZADD', groups.key(g, 'tags'), as_text.us(tag), group)
  end
  g.changed = true
end

function groups.hold_back(g, group, tag, state, score)
  groups.leave_ready(g, group, tag)
  groups.note_used(g, state)
  redis.call('ZADD', groups.key(g, state), score, group)
  if state == 'full' then g.none_full = false end
  if state == 'limited' and g.soonest then g.soonest = math.min(g.soonest, tonumber(score)) end
  if g.lined and not (state == 'limited' and score == '+inf') then groups.let_others_pass(g, group) end
end

-- The hold of the group may have ended: it is ready until it is found to be held again.
function groups.release(g, group, state)
  if state == 'full' and g.none_full then return false end
  if redis.call('ZREM', groups.key(g, state), group) == 0 then return false end
  if state == 'full' and g.counted then redis.call('ZREM', groups.key(g, 'common'), group) end
  g.soonest = nil
  groups.enter(g, group)
  return true
end

-- After a change of the defaults, groups that they hold are checked again, some by each call. At most as many are full
-- as jobs run, but any number may be limited.
function groups.apply_defaults(g)
  local at, limited, stale = as_text.us(g.changed_at), groups.key(g, 'limited'), groups.key(g, 'stale')
  at = at .. ' ' .. as_text.us(g.rules_at) .. (g.limits and ' ' .. g.limits.revision or '')
  if g.applied_at ~= at then
    groups.note_used(g, 'stale')
    if redis.call('EXISTS', stale) == 1 then
      redis.call('ZUNIONSTORE', stale, 2, stale, limited)
      redis.call('DEL', limited)
    elseif redis.call('EXISTS', limited) == 1 then
      redis.call('RENAME', limited, stale)
    end
    groups.release_full(g)
    if g.lanes then groups.all_due(g) end
    groups.track_again(g)
    groups.track_places(g)
    redis.call('HSET', g.base .. 'meta:groups', 'at', at)
    g.applied_at = at
  end
  if not groups.may_have(g, 'stale') then return end
  local found = redis.call('ZRANGE', stale, 0, groups.STALE - 1)
  for _, group in ipairs(found) do groups.release(g, group, 'stale') end
  if #found < groups.STALE then groups.note_unused(g, 'stale') end
end

function groups.release_full(g)
  for _, group in ipairs(redis.call('ZRANGE', groups.key(g, 'full'), 0, -1)) do groups.release(g, group, 'full') end
end

-- The same if the queue has more places than before, if the places of groups depend on these.
function groups.apply_places(g)
  if not (g.places_seen or g.given.keepFree or type(g.given.concurrency) == 'string') then return end
  local all = groups.queue_places(g) or math.huge
  if g.places_seen and all > tonumber(g.places_seen) then groups.release_full(g) end
  local places = as_text.us(all)
  if g.places_seen ~= places then redis.call('HSET', g.base .. 'meta:groups', 'places', places) end
  g.places_seen = places
end

-- Forgets temporary settings of values of limits that have ended: jobs that they held may go.
function groups.end_values(g)
  local ended = g.own_limits and shapes.end_own_values(g.base, g.own_limits, g.now) or {}
  for i = 1, #ended, 2 do groups.cell_freed(g, ended[i], select(2, own_values.parts(ended[i]))) end
end

-- Runs once before the first job of a call is chosen.
function groups.begin(g)
  if g.began then return end
  g.began = true
  groups.look_up_sets(g)
  if g.lanes then groups.begin_lanes(g) end
  if g.ageing then g.ageing.keeps = true end
  local keeps_free = g.given.keepFree and g.enforced
  if (g.defaults.concurrency or keeps_free) and not g.tracked then groups.track(g) end
  if keeps_free and not g.counted then groups.count_running(g) end
  groups.apply_defaults(g)
  groups.apply_places(g)
  redis.call('ZREMRANGEBYSCORE', groups.key(g, 'tags'), '-inf', as_text.us(g.v))
  groups.end_settings(g)
  groups.end_values(g)
  groups.climb_due(g)
  groups.release_due(g, 'paused', g.now)
  groups.verify_full(g)
  groups.verify_places(g)
end

function groups.release_due(g, state, by)
  if not groups.may_have(g, state) then return end
  local due = redis.call('ZRANGEBYSCORE', groups.key(g, state), '-inf', as_text.us(by), 'LIMIT', 0, groups.DUE)
  for _, group in ipairs(due) do groups.release(g, group, state) end
end

-- The same pick, under the limits of its group too. paced: whether anything may hold it
function groups.within(g, pick, by, paced)
  if g.limits and paced then
    pick.parts = g.limits.open(pick.group, pick.keys)
    pick.slot = math.max(pick.slot, (g.limits.slot(pick.parts, pick.cost, pick.costs)))
  end
  -- A job that cannot start in time is failed at once: no other must wait for its slot.
  if pick.slot <= by or (pick.deadline and pick.slot > pick.deadline) then return pick end
  if pick.group == '' then redis.call('HSET', g.base .. 'meta:groups', 'plain', pick.id) end
  return groups.hold_back(g, pick.group, pick.tag, 'limited', as_text.us(pick.slot))
end

-- Whether a job will run: one with a deferred failure, or past its deadline, is only failed.
function groups.runs(g, deferred, deadline)
  return not deferred and not (deadline and deadline < g.now)
end

function groups.is_paced(g, deferred, deadline)
  return g.enforced and groups.runs(g, deferred, deadline)
end

-- Whether its group allows more than 0 at a time: a job that may depart now may get a slot after the end of that.
function groups.is_open(g, pick, at)
  if pick.bucket and scheduled_bucket.opens(pick.bucket, at) > at then return false end
  for _, part in ipairs(g.enforced and pick.parts or {}) do
    local l = part.l
    if l.service and l.mode == 'enforce' and part.cost > 0 and scheduled_bucket.opens(l, at) > at then return false end
  end
  return true
end

-- As groups.try, for jobs without a group: only limits hold them.
function groups.try_plain(g, tag, by)
  if not g.plain_id then
    groups.leave_ready(g, '', tag)
    return nil
  end
  local pick = { group = '', id = g.plain_id, from = g.plain_from, tag = tag, slot = 0 }
  if not g.limits or string.sub(pick.id, 1, 2) == '0:' then return pick end
  pick.cost, pick.deferred, pick.costs, pick.deadline, pick.keys = job_options.cost_of_job(g.base .. pick.id)
  return groups.within(g, pick, by, groups.is_paced(g, pick.deferred, pick.deadline))
end

-- A ready group that is paused, or held for a time, is held at once, not at its next turn.
function groups.hold_as_set(g, group, tag, s)
  local state = s.paused and 'paused' or s.limited and 'limited'
  if not state then return end
  groups.hold_back(g, group, tag, state, s[state] == math.huge and '+inf' or as_text.us(s[state]))
end

-- Nil, and the group is held, if none of its jobs may depart by `by`; else as groups.pick.
function groups.try(g, group, tag, by)
  if g.lanes and not (group == '' and g.plain_id) then return groups.try_lanes(g, group, tag, by) end
  if group == '' then return groups.try_plain(g, tag, by) end
  local jobs = g.base .. 'meta:group:jobs:' .. group
  local heads = g.ageing and g.ageing.first_two(jobs) or redis.call('ZRANGE', jobs, '0', '1', 'WITHSCORES')
  local id = heads[1]
  if not id then
    groups.leave_ready(g, group, tag)
    return nil
  end
  local s = groups.settings_next(g, group)
  if s.paused then return groups.hold_as_set(g, group, tag, s) end
  local full, number = g.enforced and groups.is_full(g, group, s.concurrency), heads[2]
  if full and s.is_strict then full = not groups.goes_on(g, group, id) end
  -- Nine digits have no priority in them.
  if #number > 9 then number = as_text.us(tonumber(number) % groups.BAND) end
  local pick = {
    group = group, id = id, number = number, from = 'group', tag = tag, slot = 0, weight = s.weight,
    following = heads[3], jobs = jobs, is_strict = s.is_strict, is_paced = s.is_paced,
  }
  if g.trusts and not g.limits and not full and not s.limited then
    pick.bucket = groups.bucket(g, group, s)
    -- Nothing is owed: it may go, whatever it costs.
    local b = pick.bucket
    if not b or (not b.service and b.origin + b.tat <= g.now) then return pick end
  end
  pick.cost, pick.deferred, pick.costs, pick.deadline, pick.keys = job_options.cost_of_job(g.base .. id)
  local runs = groups.runs(g, pick.deferred, pick.deadline)
  local paced = runs and g.enforced
  if full and (runs or s.is_strict) then return groups.hold_full(g, group, tag, full) end
  pick.bucket = paced and (pick.bucket or groups.bucket(g, group, s)) or nil
  if pick.bucket then pick.slot = groups.slot(g, pick.bucket, pick.cost) end
  -- As a pause of the queue, in every mode.
  pick.hold = runs and s.limited or nil
  pick.slot = math.max(pick.slot, pick.hold or 0)
  return groups.within(g, pick, by, paced)
end

-- Whether the first group that its rate holds waits for a job that another script has removed. It no longer does: its
-- next job may go sooner, and without one it is in no line.
function groups.forget_gone(g)
  local group = redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0)[1]
  if group == '' then
    if g.plain_id then return false end
    g.soonest, g.changed = nil, true
    return redis.call('ZREM', groups.key(g, 'limited'), group) == 1
  end
  local id = groups.head(g, group)
  if id and redis.call('ZSCORE', g.base .. 'prioritized', id) then return false end
  groups.remove(g, group, id)
  return true
end

-- The first slot of a group that its rate holds, µs; math.huge if there is none.
function groups.first_limited(g)
  if not g.soonest then
    local first = groups.may_have(g, 'limited') and redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0, 'WITHSCORES')[2]
    if not first then groups.note_unused(g, 'limited') end
    g.soonest = tonumber(first or nil) or math.huge
  end
  return g.soonest
end

-- When the first of the temporarily held groups may be ready by the end of its settings, µs.
function groups.first_end(g)
  local ends = g.has_settings and redis.call('ZRANGE', groups.key(g, 'ends'), 0, groups.DUE - 1, 'WITHSCORES') or {}
  for i = 1, #ends, 2 do
    for _, state in ipairs({ 'limited', 'full' }) do
      if redis.call('ZSCORE', groups.key(g, state), ends[i]) then return tonumber(ends[i + 1]) end
    end
  end
  return math.huge
end

-- When one of the groups that are all held may be ready, µs: at its slot, or at the end of its pause or of its settings
-- or a key's, ahead of which (µs) no job is granted. math.huge if all are paused without end, nil if a job has to end
-- first.
function groups.held_until(g, ahead)
  local found = groups.may_have(g, 'paused') and redis.call('ZRANGE', groups.key(g, 'paused'), 0, 0, 'WITHSCORES')[2]
  if not found then groups.note_unused(g, 'paused') end
  local paused, ends = tonumber(found or nil), groups.first_end(g)
  if g.limits then ends = math.min(ends, g.limits.first_end(g)) end
  local first = math.min(groups.first_limited(g), math.min(paused or math.huge, ends) + ahead)
  if g.lanes then first = math.min(first, groups.first_due(g), groups.verified_next(g)) end
  return (paused or first < math.huge) and first or nil
end

-- The cause that holds the first of the held groups or lanes, as in gate/held.
function groups.cause(g)
  local is_limited = groups.first_limited(g) < math.huge
  local name = g.limits and (g.lanes or is_limited) and g.limits.of_held(g)
  if name then return 'limits:' .. name end
  if is_limited then
    local group = redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0)[1]
    return group ~= '' and groups.settings(g, group).limited and 'pause' or 'rate'
  end
  return groups.any(g, { 'full' }) and 'concurrency' or 'pause'
end

-- The next job to depart: {group, id, from (wait, prioritized or group), number (its score in `prioritized`), tag,
-- slot: the earliest, µs, that its group allows; the results of shape/job-options, if read (not if nothing holds it and
-- g.trusts is set: then the caller reads them); with limits of its group `parts`, as in groups/limits-of; for a job of
-- a group the job after it}. A job of a group has to be taken (groups.take) before it departs. soon: the next slot of
-- the queue, up to which a group is not held; latest: if all groups are held, one may go ahead to a slot by then.
-- Second, if there is none: the first slot of a group (µs), nil if that depends on the end of a job or of a pause; 0 if
-- more groups have to be tried.
function groups.pick(g, soon, latest)
  if not g.began then groups.begin(g) end
  if not g.plain_known then groups.plain(g) end
  local due = soon < latest and soon or latest
  g.ahead = latest - g.now
  if (g.soonest or groups.first_limited(g)) <= due then groups.release_due(g, 'limited', due) end
  if g.lanes then
    g.tries = 0
    if groups.first_due(g) <= due then groups.release_cells(g, due, groups.DUE) end
  end
  if (g.plain_id or g.lanes) and g.defaults.ungrouped == 'first' then
    local tag = groups.ready_tag(g, '')
    local pick = tag and groups.try(g, '', tag, soon)
    if pick then return pick end
  end
  for _ = 1, groups.TRIES do
    local first, tag = groups.first_ready(g)
    local by = g.goes_ahead and latest or soon
    if not first then
      local slot = groups.first_limited(g)
      if g.lanes and groups.first_due(g) <= math.min(slot, latest) then
        groups.release_cells(g, latest, 1)
        first, tag = groups.first_ready(g)
        -- The next picks have to try the groups that were let go in the same way: otherwise these would be held again.
        g.goes_ahead, by = true, latest
      elseif slot <= latest then
        groups.release(g, redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0)[1], 'limited')
        first, tag = groups.first_ready(g)
        by = latest
      elseif slot == math.huge or not groups.forget_gone(g) then
        return nil, g.sorts_more and 0 or groups.held_until(g, latest - g.now)
      end
    end
    local pick = first and groups.try(g, first, tag, by)
    if pick then return pick end
    if g.lanes and g.tries >= groups.TRIES then break end
  end
  return nil, 0
end

-- If all groups are held, the first slots of those whose rate holds them, µs, ascending: at most `most`. Nil if one is
-- ready: only the queue holds it.
function groups.slots(g, most)
  if groups.any(g, { 'ready', 'stale' }) then return nil end
  local found, slots = redis.call('ZRANGE', groups.key(g, 'limited'), 0, most - 1, 'WITHSCORES'), {}
  for i = 2, #found, 2 do if found[i] ~= 'inf' then slots[#slots + 1] = tonumber(found[i]) end end
  return g.lanes and groups.with_dues(g, slots, most) or slots
end

-- The earliest slot of the n-th job to depart, µs, if all groups are held, by the first ones of each; 0 if one is
-- ready, or none is known.
function groups.held_slot(g, n)
  if not g.enforced then return 0 end
  n = math.min(n, groups.TRIES)
  local slots = groups.slots(g, n) or {}
  return slots[math.min(n, #slots)] or 0
end

-- By how much a job advances the tag of its group.
function groups.step(cost, weight)
  if cost == weight then return groups.UNIT end
  return math.max(1, math.floor(cost * groups.UNIT / weight + 0.5))
end

-- Whether something may hold the job after a departed one. A caller that starts many does not check one before its turn
-- if it could go now at the same cost.
function groups.may_be_held(g, pick, cost)
  local b = pick.bucket
  if pick.parts or pick.hold then return true end
  if not b or b.service or not g.trusts or b.origin + b.last > g.now then return b end
  return b.origin + b.tat + bucket.ceil((math.min(cost, b.burst) - b.burst) * b.interval) > g.now
end

-- The earliest slot of the job after a departed one; 0 if it will only be failed.
function groups.next_slot(g, pick)
  local cost, deferred, costs, deadline, keys = job_options.cost_of_job(g.base .. pick.following)
  local slot = pick.bucket and groups.slot(g, pick.bucket, cost) or 0
  -- A job of another tier is checked at the turn of its group.
  local like = pick.parts and (keys or {})[':tier'] == (pick.keys or {})[':tier']
  if like then slot = math.max(slot, (g.limits.slot(pick.parts, cost, costs))) end
  slot = math.max(slot, pick.hold or 0)
  return (deferred or (deadline and slot > deadline)) and 0 or slot
end

-- The picked job has departed with this slot (µs). runs: false for one that will only be failed
function groups.served(g, pick, slot, cost, runs)
  g.v, g.changed = math.max(g.v, pick.tag), true
  local tag, group = pick.tag, pick.group
  if runs then tag = tag + groups.step(cost, pick.weight or 1) end
  if runs and pick.parts then
    g.limits.charge(pick.parts, slot, g.base .. pick.id, g.lock_ms, g.horizon)
    groups.take_places(g, pick.id, pick.parts)
  end
  if g.ageing then g.ageing.left(groups.line(g, group), pick.id) end
  if not pick.jobs then
    groups.move(g, '', tag)
    g.plain_known = false
    return
  end
  redis.call('ZREM', pick.jobs, pick.id)
  if (runs or pick.is_strict) and g.tracked and group ~= '' then groups.hold(g, group, pick.id) end
  local b, following = pick.bucket, pick.following
  if runs and b then
    bucket.charge(b, cost, meter.at(b, slot))
    groups.keep_bucket(g, b)
    if b.rests then groups.rise(g, group, slot) end
    if pick.is_paced then groups.note_use(g, group, cost) end
  end
  if pick.lane then return groups.lane_served(g, pick, tag, runs) end
  if not following then
    g.occupied[group] = nil
    return groups.leave_ready(g, group, tag)
  end
  local next_slot = groups.may_be_held(g, pick, cost) and groups.next_slot(g, pick) or 0
  if next_slot > g.now then return groups.hold_back(g, group, tag, 'limited', as_text.us(next_slot)) end
  groups.move(g, group, tag)
end

group_jobs(groups)
group_lanes(groups)
group_lines(groups)
group_pace(groups)
group_places(groups)
group_rules(groups)
group_running(groups)
group_strict(groups)

return groups
