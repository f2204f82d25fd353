--- @include "clock"
--- @include "text"
--- @include "bucket"
--- @include "shape"
--- @include "job"
--- @include "ageing"
--- @include "group-later"

-- Groups: jobs of one queue that share a key (a tenant, a domain), each group with a rate, a limit on running jobs, a
-- weight and a pause of its own. Which group is next is decided by start-time fair queueing (Goyal, Vin, Cheng 1996:
-- "Start-Time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks"): each group has
-- a start tag, the lowest leaves, the virtual time V becomes its tag, and its next tag is that plus cost / weight. Tags
-- of groups whose jobs all left, or that are held, are kept until V has passed them: otherwise a group that always has
-- one job waiting would be served after each of its departures. Groups that come later than V are in line in the order
-- in which they came, whatever their names: each gets a tag just above the last one's.
--   meta:groups                hash: v (virtual time), t (the last tag of a group that came), seq (number of the last
--                              job), tracked (1 once running jobs are recorded), at (since when the defaults are in
--                              force, µs, and which limits are), since (when a departure first found that, µs), seen (Redis's time, µs), back (how far it has gone back so far, µs), filled
--                              (until when buckets are full after a loss of state, µs), plain (the job without a group
--                              that limits per group held last)
--   meta:groups:ready          sorted set, group -> tag. A group with waiting jobs is in exactly one of these four
--   meta:groups:limited        group -> its next slot, µs. After a change of the defaults, meta:groups:stale has those
--                              that are to be looked at again
--   meta:groups:full           group -> since when its limit on running jobs has been reached, or was last checked, µs
--   meta:groups:paused         group -> until when, µs, or +inf
--   meta:groups:tags           group -> tag, of groups that are not ready, if it is above V
--   meta:groups:settings       hash, group -> JSON: fields: field -> { value, by, reason, at, until? } (ms), at: of the
--                              last change, µs. The value of `paused` and of `limited` (until a time) is true. From
--                              feedback, until a time: `slowed` (the most that its rate is) and `crowded` (the most
--                              of its jobs that run)
--   meta:groups:ends           group -> when something that was set for it for a time ends next, µs
--   meta:groups:held           hash, running job -> group
--   meta:groups:later          jobs that hold places, but are in no line (lib/group-later)
--   meta:group:jobs:<group>    sorted set of its waiting jobs: priority * 2^32 + the number of the job
--   meta:group:held:<group>    set of its running jobs
--   meta:group:limit:…         its states of limits per group (lib/group-limits); they expire
--   meta:group:feedback:<group>  feedback about it (lib/group-feedback); it expires
--   meta:group:bucket:<group>  its bucket: origin (µs), tat (since then), interval, burst, and `back` when it was
--                              stored; the last slot is the origin. It expires when the bucket is empty
-- A waiting job of a group is a member of BullMQ's `prioritized` with its number as score, below those of priority 1:
-- stock workers and tools see an ordinary job. Jobs without a group are one group, named ''.
-- One function creates all the others: a script that needs none of them does not pay for them.
local function groups_library()
  local groups = {
    -- The unit of priorities in BullMQ's scores.
    BAND = 4294967296,
    -- Tags are whole numbers: so much for a cost of 1 and a weight of 1. Redis is slow with fractions in small sets.
    UNIT = 1048576,
    -- At most this many groups become ready, are tried for one job, or are verified by one call.
    DUE = 16, TRIES = 64, STALE = 100,
    -- At most this many jobs of a group are verified before it is found full.
    VERIFIED = 200,
    -- How often a group at its limit on running jobs is verified, µs.
    VERIFY_US = 1000000,
    MAX_PRIORITY = 2097152, MAX_ID = 256,
    -- From so many groups in one call on, a tree is faster than a list.
    LISTED = 16,
    -- The names of all ready groups are read for jobs of some, if they are at most so many times as many.
    NAMES = 4,
  }

  function groups.key(g, name)
    return g.base .. 'meta:groups:' .. name
  end

  function groups.fields(given)
    return {
      interval = given.rate and shape_interval(given.rate), burst = given.burst or 1, concurrency = given.concurrency,
      capacity = given.capacity, share = given.share, weight = given.weight or 1, ungrouped = given.ungrouped,
    }
  end

  -- shape: one that has groups
  function groups.open(base, shape, now)
    local f = redis.call('HMGET', base .. 'meta:groups', 'v', 't', 'tracked', 'at', 'seen', 'back', 'filled', 'seq',
      'plain')
    local g = setmetatable({
      base = base, now = now, v = tonumber(f[1]) or 0, t = tonumber(f[2]) or 0, tracked = f[3] == '1',
      given = cjson.decode(shape.groups), changed_at = shape.groups_at, enforced = shape.mode == 'enforce', known = {},
      applied_at = f[4], back = tonumber(f[6]) or 0, filled = tonumber(f[7]) or 0, seq = tonumber(f[8]) or 0,
      plain_held = f[9], sorted = 0, occupied = {}, moved = {}, begun = {}, ended = {}, most = 1,
      together = true, ageing = ageing_open(base, shape, now),
    }, { __index = groups })
    g.defaults = groups.fields(g.given)
    g.has_settings = redis.call('EXISTS', groups.key(g, 'settings')) == 1
    local seen = tonumber(f[5]) or now
    if now < seen then
      -- Redis's clock has gone back: distances in time are kept.
      g.back, g.filled, g.changed, g.applied_at = g.back + seen - now, g.filled - (seen - now), true, false
    end
    return g
  end

  -- For scripts that only note the end of a job.
  function groups.bare(base)
    return setmetatable({ base = base, occupied = {}, moved = {}, begun = {}, ended = {} }, { __index = groups })
  end

  function groups.load_tags(g)
    if g.v then return end
    local f = redis.call('HMGET', g.base .. 'meta:groups', 'v', 't', 'seq')
    g.v, g.t, g.seq = tonumber(f[1]) or 0, tonumber(f[2]) or 0, tonumber(f[3]) or 0
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

  -- Stores the tags of the groups that were served, by one command for all of them.
  function groups.store_tags(g)
    if not next(g.moved) then return end
    local args = {}
    for group, tag in pairs(g.moved) do
      args[#args + 1] = tag
      args[#args + 1] = group
    end
    g.moved = {}
    local ready = groups.key(g, 'ready')
    if #args < 2 * groups.LISTED then return redis.call('ZADD', ready, unpack(args)) end
    -- Redis keeps a small set as a list and searches that from one end, unless it has had a long member.
    local long = string.rep('-', groups.MAX_ID + 1)
    redis.call('ZADD', ready, 0, long)
    groups.in_parts(args, function(...) redis.call('ZADD', ready, ...) end)
    redis.call('ZREM', ready, long)
  end

  -- From now on new jobs are stored when the groups are saved: by one command in BullMQ's set, and by one in the line of
  -- each of their groups. Nothing may look for them there before.
  function groups.gather(g)
    g.gathered, g.lines = {}, {}
  end

  -- number: of the job; priority: inside its group
  function groups.gather_job(g, group, id, number, priority)
    local line, all, score = g.lines[group], g.gathered, string.format('%d', number)
    local n = #all
    all[n + 1], all[n + 2] = score, id
    if priority > 0 then score = string.format('%d', priority * groups.BAND + number) end
    if not line then
      g.lines[group], g.lines[#g.lines + 1] = { score, id }, group
      return
    end
    n = #line
    line[n + 1], line[n + 2] = score, id
  end

  -- New jobs came into the line of a group that is not ready: it becomes so, unless it is held by a job before them.
  -- line: score and id of each
  function groups.came(g, group, jobs, line)
    local first = redis.call('ZRANGE', jobs, 0, 0)[1]
    for i = 2, #line, 2 do
      if line[i] == first then
        if redis.call('ZCARD', jobs) == #line / 2 then groups.begin_line(g, group)
        else groups.release(g, group, 'limited') end
        return
      end
    end
  end

  function groups.store_gathered(g)
    local all, lines = g.gathered, g.lines
    g.gathered, g.lines = nil, nil
    groups.in_parts(all, function(...) redis.call('ZADD', g.base .. 'prioritized', ...) end)
    groups.expect(g, lines)
    local call, stem, occupied = redis.call, g.base .. 'meta:group:jobs:', g.occupied
    for _, group in ipairs(lines) do
      local jobs, line = stem .. group, lines[group]
      if #line == 2 then
        call('ZADD', jobs, line[1], line[2])
      else
        groups.in_parts(line, function(...) call('ZADD', jobs, ...) end)
      end
      if occupied[group] ~= -1 then groups.came(g, group, jobs, line) end
    end
  end

  function groups.save(g)
    groups.store_tags(g)
    if g.gathered then groups.store_gathered(g) end
    local held = g.base .. 'meta:groups:held'
    groups.in_parts(g.ended, function(...) redis.call('HDEL', held, ...) end)
    groups.in_parts(g.begun, function(...) redis.call('HSET', held, ...) end)
    g.ended, g.begun = {}, {}
    if not g.changed then return end
    -- The end of a busy period: no tag is above V any more.
    local busy = redis.call('EXISTS', groups.key(g, 'ready'), groups.key(g, 'limited'), groups.key(g, 'full'),
      groups.key(g, 'paused'), groups.key(g, 'stale')) > 0
    if not busy then
      redis.call('DEL', groups.key(g, 'tags'))
      g.v, g.t = 0, 0
    end
    local key = g.base .. 'meta:groups'
    local v, t, seq = us_text(g.v), us_text(g.t), us_text(g.seq)
    if g.now then
      redis.call('HSET', key, 'v', v, 't', t, 'seq', seq, 'seen', us_text(g.now), 'back', us_text(g.back), 'filled',
        us_text(g.filled))
    else
      redis.call('HSET', key, 'v', v, 't', t, 'seq', seq)
    end
    g.changed = false
  end

  -- The group and the priority inside it that a job's options (JSON) name; nil if none.
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

  -- What applies at a time to a group for which entries were set. Second, how many of these apply.
  function groups.settings_at(g, entries, at)
    local given, live, soonest = {}, 0, math.huge
    for field, value in pairs(g.given) do given[field] = value end
    for field, entry in pairs(entries) do
      local ends = entry['until'] and entry['until'] * 1000 or math.huge
      if ends > at then
        live, soonest = live + 1, math.min(soonest, ends)
        if entry.value == cjson.null then given[field] = nil
        elseif entry.value == true then given[field] = ends
        else given[field] = entry.value end
      end
    end
    local s = groups.fields(given)
    if given.slowed then s.interval = math.max(s.interval or 0, shape_interval(given.slowed)) end
    if given.crowded then s.concurrency = math.min(s.concurrency or math.huge, given.crowded) end
    s.paused, s.limited, s.ends = given.paused, given.limited, soonest
    return s, live
  end

  -- What applies to a group: the defaults, and what was set for it. paused, limited: until when (µs), or nil;
  -- changed_at: since when its rate and burst are in force; before: what applied before that, at the end of each of what
  -- was set since its bucket was stored
  function groups.settings(g, group)
    if g.known[group] then return g.known[group] end
    local text = g.has_settings and redis.call('HGET', groups.key(g, 'settings'), group)
    if not text then
      g.defaults.changed_at = g.changed_at
      return g.defaults
    end
    local own, over = cjson.decode(text), {}
    local at = math.max(g.changed_at, tonumber(own.at))
    for _, entry in pairs(own.fields) do
      local ends = entry['until'] and entry['until'] * 1000 or math.huge
      if ends <= g.now then over[#over + 1] = math.max(at, ends) end
    end
    local s, live = groups.settings_at(g, own.fields, g.now)
    table.sort(over)
    s.changed_at, s.before = over[#over] or at, {}
    for i = 1, #over - 1 do
      s.before[i] = groups.settings_at(g, own.fields, over[i])
      s.before[i].changed_at = over[i]
    end
    g.known[group] = s
    if g.began and #over > 0 then groups.forget(g, group, s, own, live) end
    return s
  end

  -- What was set for the group and has ended is forgotten, once its bucket has taken over until when it applied.
  function groups.forget(g, group, s, own, live)
    local b, key = groups.bucket(g, group, s), groups.key(g, 'settings')
    if b then groups.keep_bucket(g, group, b) end
    s.before = nil
    for field, entry in pairs(own.fields) do
      if entry['until'] and entry['until'] * 1000 <= g.now then own.fields[field] = nil end
    end
    if live > 0 then return redis.call('HSET', key, group, cjson.encode(own)) end
    redis.call('HDEL', key, group)
    redis.call('ZREM', groups.key(g, 'ends'), group)
  end

  -- Notes when the next of its settings ends.
  function groups.note_ends(g, group)
    local ends, key = groups.settings(g, group).ends or math.huge, groups.key(g, 'ends')
    if ends < math.huge then redis.call('ZADD', key, us_text(ends), group) else redis.call('ZREM', key, group) end
  end

  -- What was set for a group for a time has ended: it may have held the group.
  function groups.release_held(g, group)
    for _, state in ipairs({ 'limited', 'full' }) do groups.release(g, group, state) end
  end

  -- The same of all groups, some of them by each call.
  function groups.end_settings(g)
    if not g.has_settings then return end
    local over = redis.call('ZRANGEBYSCORE', groups.key(g, 'ends'), '-inf', us_text(g.now), 'LIMIT', 0, groups.DUE)
    for _, group in ipairs(over) do
      groups.note_ends(g, group)
      groups.release_held(g, group)
    end
  end

  -- g.awaited: whether no group was ready before, so that workers may sleep.
  function groups.note_awaited(g)
    if g.awaited == nil then g.awaited = redis.call('EXISTS', groups.key(g, 'ready')) == 0 end
  end

  -- A group that has waiting jobs and is not held takes its place among the others.
  function groups.enter(g, group)
    groups.load_tags(g)
    groups.note_awaited(g)
    local tag = tonumber(redis.call('ZSCORE', groups.key(g, 'tags'), group) or nil)
    if tag then redis.call('ZREM', groups.key(g, 'tags'), group) end
    if not tag or tag <= g.v then
      tag = math.max(g.v, g.t) + 1
      g.t = tag
    end
    redis.call('ZADD', groups.key(g, 'ready'), us_text(tag), group)
    groups.line_up(g, group, tag)
    g.changed = true
    return tag
  end

  -- A group has jobs again: it is ready, unless it was paused, or held for a time, before it had any.
  function groups.begin_line(g, group)
    local text = g.has_settings ~= false and redis.call('HGET', groups.key(g, 'settings'), group)
    local fields, now = text and cjson.decode(text).fields or {}, g.now or (text and redis_now())
    for _, hold in ipairs({ { fields.paused, 'paused' }, { fields.limited, 'limited' } }) do
      local ends = hold[1] and hold[1]['until'] and hold[1]['until'] * 1000
      if hold[1] and not (ends and ends <= now) then
        g.soonest = nil
        -- Workers that sleep do not know when it ends.
        if ends then groups.note_awaited(g) end
        return redis.call('ZADD', groups.key(g, hold[2]), ends and us_text(ends) or '+inf', group)
      end
    end
    groups.enter(g, group)
  end

  -- The ready groups with the least tags are read `most` at a time: g.names and g.tags, from g.at on. g.all: whether these
  -- are all that there are.

  -- A group takes its place among those that were read, unless it is behind them. Of equal tags Redis decides.
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
      local rows = redis.call('ZRANGE', groups.key(g, 'ready'), 0, g.most - 1, 'WITHSCORES')
      g.names, g.tags, g.at, g.all = {}, {}, 1, #rows < 2 * g.most
      for i = 1, #rows, 2 do
        local n = #g.names + 1
        g.names[n], g.tags[n] = rows[i], tonumber(rows[i + 1])
      end
    end
    return g.names[g.at], g.tags[g.at]
  end

  -- The tag of a group; nil if it is not ready.
  function groups.ready_tag(g, group)
    return g.moved[group] or tonumber(redis.call('ZSCORE', groups.key(g, 'ready'), group) or nil)
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
    if tag > g.v then redis.call('ZADD', groups.key(g, 'tags'), us_text(tag), group) end
    g.changed = true
  end

  function groups.hold_back(g, group, tag, state, score)
    groups.leave_ready(g, group, tag)
    redis.call('ZADD', groups.key(g, state), score, group)
    if state == 'full' then g.none_full = false end
    if state == 'limited' and g.soonest then g.soonest = math.min(g.soonest, tonumber(score)) end
  end

  -- What held the group may have ended: it is ready until it is found to be held again.
  function groups.release(g, group, state)
    if state == 'full' and g.none_full then return false end
    if redis.call('ZREM', groups.key(g, state), group) == 0 then return false end
    g.soonest = nil
    groups.enter(g, group)
    return true
  end

  -- Before jobs are added to these groups: those that are ready stay so, whatever is added.
  function groups.expect(g, names)
    local ready = groups.key(g, 'ready')
    -- Names alone take Redis less than the tag of each.
    if redis.call('ZCARD', ready) <= groups.NAMES * #names then
      for _, group in ipairs(redis.call('ZRANGE', ready, 0, -1)) do g.occupied[group] = -1 end
      return
    end
    -- Rights that were given for 0.1.0 lack this command: then each job is looked at.
    local function tags(...) return redis.pcall('ZMSCORE', ready, ...) end
    groups.read_each(names, tags, function(group, tag)
      if tag then g.occupied[group] = -1 end
    end)
  end

  -- The number of a job that comes now.
  function groups.next_number(g)
    groups.load_tags(g)
    local number = (g.seq + 1) % groups.BAND
    g.seq, g.changed = number, true
    return number
  end

  -- number: of the job, if it has one
  function groups.insert(g, group, id, priority, number)
    priority = priority or 0
    if g.gathered then return groups.gather_job(g, group, id, number or groups.next_number(g), priority) end
    local jobs = g.base .. 'meta:group:jobs:' .. group
    number = number or groups.next_number(g)
    redis.call('ZADD', g.base .. 'prioritized', us_text(number), id)
    redis.call('ZADD', jobs, us_text(priority * groups.BAND + number), id)
    local before = g.occupied[group]
    if before and before <= priority then return end
    g.occupied[group] = priority
    -- With ageing, too, a new job is the next one only if it is before all others here.
    if redis.call('ZRANK', jobs, id) > 0 then return end
    if redis.call('ZCARD', jobs) == 1 then groups.begin_line(g, group) else groups.release(g, group, 'limited') end
  end

  -- A waiting job was removed, if id is given. A group without jobs is in no line; it keeps its tag.
  function groups.remove(g, group, id)
    local jobs = g.base .. 'meta:group:jobs:' .. group
    if id then redis.call('ZREM', jobs, id) end
    if redis.call('EXISTS', jobs) == 1 then
      -- Its next job may be another one, which is not held for as long.
      if id then groups.release(g, group, 'limited') end
      return
    end
    groups.load_tags(g)
    g.soonest, g.occupied[group], g.changed = nil, nil, true
    local tag = groups.ready_tag(g, group)
    if tag then groups.leave_ready(g, group, tag) end
    for _, state in ipairs({ 'limited', 'full', 'paused', 'stale' }) do redis.call('ZREM', groups.key(g, state), group) end
  end

  -- A waiting job was removed, or is about to be.
  function groups.removed(g, id)
    local group = groups.of_job(g.base, id)
    if group then groups.remove(g, group, id) else groups.removed_plain(g) end
  end

  -- A job of a group that came to the head by another way than our scripts: a retry, a promoted or stalled job, one of a
  -- stock producer. Returns whether it was one.
  function groups.sort_in(g, id, from)
    local group, priority = groups.of_job(g.base, id)
    if not group then return false end
    group_later.remove(g.base, group, id)
    if from == 'wait' then
      redis.call('RPOP', g.base .. 'wait')
    elseif not priority then
      priority = math.floor(tonumber(redis.call('ZSCORE', g.base .. 'prioritized', id)) / groups.BAND)
    end
    groups.insert(g, group, id, priority)
    return true
  end

  -- Where the jobs of a group wait, as lib/ageing has it.
  function groups.line(g, group)
    if group ~= '' then return { set = g.base .. 'meta:group:jobs:' .. group, from = 0 } end
    return { set = g.base .. 'prioritized', from = groups.BAND, list = g.base .. 'wait' }
  end

  function groups.plain_first(g)
    if g.ageing then
      local first = g.ageing.first(groups.line(g, ''))
      if first then return first.id, first.from end
      return nil
    end
    local id = redis.call('LINDEX', g.base .. 'wait', -1)
    if id then return id, 'wait' end
    return redis.call('ZRANGEBYSCORE', g.base .. 'prioritized', us_text(groups.BAND), '+inf', 'LIMIT', 0, 1)[1], 'prioritized'
  end

  -- The next job of a group; nil if none waits.
  function groups.head(g, group)
    if group == '' then return (groups.plain_first(g)) end
    if g.ageing then return (g.ageing.first(groups.line(g, group)) or {}).id end
    return redis.call('ZRANGE', g.base .. 'meta:group:jobs:' .. group, 0, 0)[1]
  end

  -- The first job without a group, and where it is. Jobs of groups before it are sorted in, at most STALE per call.
  function groups.plain_head(g)
    while true do
      local id, from = groups.plain_first(g)
      local marker = id and string.sub(id, 1, 2) == '0:'
      if not id or marker or g.sorted >= groups.STALE or not groups.sort_in(g, id, from) then return id, from end
      g.sorted = g.sorted + 1
    end
  end

  -- Jobs without a group are ready as long as there are any.
  function groups.plain(g)
    if g.plain_known then return end
    g.plain_known = true
    g.plain_id, g.plain_from = groups.plain_head(g)
    if not g.plain_id or redis.call('ZSCORE', groups.key(g, 'ready'), '') then return end
    if not g.limits then return groups.enter(g, '') end
    if redis.call('ZSCORE', groups.key(g, 'limited'), '') then
      -- Another job than the one that is held may go sooner.
      if g.plain_id ~= g.plain_held then groups.release(g, '', 'limited') end
    elseif not redis.call('ZSCORE', groups.key(g, 'stale'), '') then
      groups.enter(g, '')
    end
  end

  -- A waiting job without a group was removed: what held it may not hold the one behind it.
  function groups.removed_plain(g)
    if not redis.call('ZSCORE', groups.key(g, 'limited'), '') then return end
    g.awaited = g.awaited or redis.call('EXISTS', groups.key(g, 'ready')) == 0
  end

  -- Takes a picked job out of BullMQ's set. False if another script than ours has removed it: then it is forgotten.
  function groups.take(g, pick)
    if redis.call('ZREM', g.base .. 'prioritized', pick.id) == 1 then return true end
    groups.remove(g, pick.group, pick.id)
    return false
  end

  function groups.put_back(g, pick)
    redis.call('ZADD', g.base .. 'prioritized', pick.number, pick.id)
  end

  -- Looks up jobs that are counted somewhere, others each time if they are more than VERIFIED, and calls forget(id) for
  -- those that are gone. ids_from(from, most); waits(id): whether it is still there, and whether it holds a place. Returns
  -- for how many jobs out of all that were looked up the latter is so.
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
    return seen > 0 and held / seen or 1
  end

  -- How many places the jobs of a group hold: those in its line, and those that are delayed or wait for their children.
  -- Jobs that other scripts removed, and those beyond the horizon of the capacity (due, as in lib/group-later), only
  -- count as long as that makes no more than `most`. Second, how many are in line.
  function groups.places(g, group, most, due)
    local base, jobs = g.base, g.base .. 'meta:group:jobs:' .. group
    local line, later = redis.call('ZCARD', jobs), group_later.count(base, group)
    if line + later <= most then return line + later, line end
    groups.verify(g, line, function(from, count) return redis.call('ZRANGE', jobs, from, from + count - 1) end,
      function(id) return redis.call('ZSCORE', base .. 'prioritized', id), true end,
      function(id) groups.remove(g, group, id) end)
    local part = groups.verify(g, later, function(from, count) return group_later.ids(base, group, from, count) end,
      function(id) return group_later.waits(base, id, due) end,
      function(id) group_later.remove(base, group, id) end)
    line = redis.call('ZCARD', jobs)
    return line + math.ceil(part * group_later.count(base, group)), line
  end

  -- An empty bucket or, after a loss of state, one that was full when what had been granted before was over.
  function groups.new_bucket(g, s)
    local full = g.filled > 0 and bucket_ceil(s.burst * s.interval) or 0
    return { origin = g.filled > 0 and g.filled or g.now, tat = full, last = 0, interval = s.interval, burst = s.burst }
  end

  -- Redis has lost, or may have lost, charges of buckets: nothing leaves before `ready`, and none has burst left then.
  function groups.fill(g, ready)
    g.filled, g.changed = math.max(g.filled, ready), true
  end

  function groups.reshape(g, b, s)
    if not s.interval or (b.interval == s.interval and b.burst == s.burst) then return end
    bucket_reshape(b, s.interval, s.burst, math.min(g.now, s.changed_at) - b.origin)
  end

  function groups.bucket(g, group, s)
    if not s.interval then return nil end
    local text = redis.call('GET', g.base .. 'meta:group:bucket:' .. group)
    if not text then return groups.new_bucket(g, s) end
    local origin, tat, interval, burst, back = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    local b = {
      origin = tonumber(origin) - (g.back - tonumber(back)), tat = tonumber(tat), last = 0, interval = tonumber(interval),
      burst = tonumber(burst),
    }
    if b.origin < g.filled then return groups.new_bucket(g, s) end
    for _, before in ipairs(s.before or {}) do groups.reshape(g, b, before) end
    groups.reshape(g, b, s)
    return b
  end

  -- The last slot of a group's bucket, µs; nil if the bucket is not stored.
  function groups.last_slot(g, group)
    local text = redis.call('GET', g.base .. 'meta:group:bucket:' .. group)
    local origin, back = string.match(text or '', '^(%S+).* (%S+)$')
    return origin and tonumber(origin) - (g.back - tonumber(back))
  end

  -- A bucket that is empty is not kept for long.
  function groups.keep_bucket(g, group, b)
    local key, origin = g.base .. 'meta:group:bucket:' .. group, b.origin + math.floor(b.last)
    local tat = b.tat - math.floor(b.last)
    local state = us_text(origin) .. ' ' .. exact_text(tat) .. ' ' .. exact_text(b.interval) .. ' '
      .. exact_text(b.burst) .. ' ' .. us_text(g.back)
    -- Redis's clock may go back, but not by much.
    redis.call('SET', key, state, 'PX', math.ceil(math.max(0, origin + tat - g.now) / 1000) + 60000)
  end

  function groups.slot(g, b, cost)
    return b.origin + math.ceil(bucket_slot(b, cost, g.now - b.origin))
  end

  -- Whether the job of a running list no longer runs: it has neither a lock nor a place there.
  function groups.has_ended(g, id)
    return redis.call('EXISTS', g.base .. id .. ':lock') == 0 and not redis.call('LPOS', g.base .. 'active', id)
  end

  -- Ends of jobs that did not pass our scripts leave their places taken.
  function groups.verify_full(g)
    local first = redis.call('ZRANGE', groups.key(g, 'full'), 0, 0, 'WITHSCORES')
    local group = first[1]
    g.none_full = not group
    if not group or tonumber(first[2]) > g.now - groups.VERIFY_US then return end
    for _, id in ipairs(redis.call('SMEMBERS', g.base .. 'meta:group:held:' .. group)) do
      if groups.has_ended(g, id) then groups.unhold(g, group, id) end
    end
    local s = groups.settings(g, group)
    if not s.concurrency or redis.call('SCARD', g.base .. 'meta:group:held:' .. group) < s.concurrency then
      groups.release(g, group, 'full')
    else
      redis.call('ZADD', groups.key(g, 'full'), us_text(g.now), group)
    end
  end

  -- From the first limit on running jobs on, those of all groups are recorded.
  function groups.track(g)
    for _, id in ipairs(redis.call('LRANGE', g.base .. 'active', 0, -1)) do
      local group = groups.of_job(g.base, id)
      if group then groups.hold(g, group, id) end
    end
    redis.call('HSET', g.base .. 'meta:groups', 'tracked', 1)
    g.tracked = true
  end

  -- Scripts that choose jobs write the hash of all running ones by groups.save.
  function groups.hold(g, group, id)
    g.begun[#g.begun + 1] = id
    g.begun[#g.begun + 1] = group
    if g.running then g.running = g.running + 1 end
    redis.call('SADD', g.base .. 'meta:group:held:' .. group, id)
  end

  function groups.unhold(g, group, id)
    if g.together then
      g.ended[#g.ended + 1] = id
    else
      redis.call('HDEL', g.base .. 'meta:groups:held', id)
    end
    redis.call('SREM', g.base .. 'meta:group:held:' .. group, id)
  end

  -- Whether as many jobs of a group run as may. That is looked up once as many of all groups run.
  function groups.is_full(g, group, most)
    if not most then return false end
    g.running = g.running or redis.call('HLEN', g.base .. 'meta:groups:held') + #g.begun / 2
    return g.running >= most and redis.call('SCARD', g.base .. 'meta:group:held:' .. group) >= most
  end

  -- After a change of the defaults, groups that they hold are looked at again, some by each call. As many are full as
  -- jobs run at most, but any number may be limited.
  function groups.apply_defaults(g)
    local at, limited, stale = us_text(g.changed_at), groups.key(g, 'limited'), groups.key(g, 'stale')
    if g.limits then at = at .. ' ' .. g.limits.revision .. (g.enforced and '' or ' shadow') end
    if g.applied_at ~= at then
      if redis.call('EXISTS', stale) == 1 then
        redis.call('ZUNIONSTORE', stale, 2, stale, limited)
        redis.call('DEL', limited)
      elseif redis.call('EXISTS', limited) == 1 then
        redis.call('RENAME', limited, stale)
      end
      for _, group in ipairs(redis.call('ZRANGE', groups.key(g, 'full'), 0, -1)) do groups.release(g, group, 'full') end
      redis.call('HSET', g.base .. 'meta:groups', 'at', at, 'since', us_text(g.now))
      g.applied_at = at
    end
    for _, group in ipairs(redis.call('ZRANGE', stale, 0, groups.STALE - 1)) do groups.release(g, group, 'stale') end
  end

  -- What has to be done once before the first job of a call is chosen.
  function groups.begin(g)
    if g.began then return end
    g.began = true
    if g.ageing then g.ageing.keeps = true end
    if g.defaults.concurrency and not g.tracked then groups.track(g) end
    groups.apply_defaults(g)
    redis.call('ZREMRANGEBYSCORE', groups.key(g, 'tags'), '-inf', us_text(g.v))
    groups.end_settings(g)
    groups.release_due(g, 'paused', g.now)
    groups.verify_full(g)
  end

  function groups.release_due(g, state, by)
    local due = redis.call('ZRANGEBYSCORE', groups.key(g, state), '-inf', us_text(by), 'LIMIT', 0, groups.DUE)
    for _, group in ipairs(due) do groups.release(g, group, state) end
  end

  -- The same pick, under the limits of its group too. paced: whether anything may hold it
  function groups.within(g, pick, by, paced)
    if g.limits and paced then
      pick.parts = g.limits.open(pick.group)
      pick.slot = math.max(pick.slot, (g.limits.slot(pick.parts, pick.cost, pick.costs)))
    end
    -- A job that cannot start in time is failed at once: no other is to wait for its slot.
    if pick.slot <= by or (pick.deadline and pick.slot > pick.deadline) then return pick end
    if pick.group == '' then redis.call('HSET', g.base .. 'meta:groups', 'plain', pick.id) end
    return groups.hold_back(g, pick.group, pick.tag, 'limited', us_text(pick.slot))
  end

  -- Whether a job is to run: one with a deferred failure, or that is too late, is only failed.
  function groups.runs(g, deferred, deadline)
    return not deferred and not (deadline and deadline < g.now)
  end

  function groups.is_paced(g, deferred, deadline)
    return g.enforced and groups.runs(g, deferred, deadline)
  end

  -- As groups.try, for jobs without a group: only limits hold them.
  function groups.try_plain(g, tag, by)
    if not g.plain_id then
      groups.leave_ready(g, '', tag)
      return nil
    end
    local pick = { group = '', id = g.plain_id, from = g.plain_from, tag = tag, slot = 0 }
    if not g.limits or string.sub(pick.id, 1, 2) == '0:' then return pick end
    pick.cost, pick.deferred, pick.costs, pick.deadline = job_cost(g.base .. pick.id)
    return groups.within(g, pick, by, groups.is_paced(g, pick.deferred, pick.deadline))
  end

  -- A ready group that is paused, or held for a time, is held at once, not at its next turn.
  function groups.hold_as_set(g, group, tag, s)
    local state = s.paused and 'paused' or s.limited and 'limited'
    if not state then return end
    groups.hold_back(g, group, tag, state, s[state] == math.huge and '+inf' or us_text(s[state]))
  end

  -- Nil, and the group is held, if no job of it may leave by `by`; else as groups.pick.
  function groups.try(g, group, tag, by)
    if group == '' then return groups.try_plain(g, tag, by) end
    local jobs = g.base .. 'meta:group:jobs:' .. group
    local heads = g.ageing and g.ageing.first_two(jobs) or redis.call('ZRANGE', jobs, 0, 1, 'WITHSCORES')
    local id = heads[1]
    if not id then
      groups.leave_ready(g, group, tag)
      return nil
    end
    local s = groups.settings(g, group)
    if s.paused then return groups.hold_as_set(g, group, tag, s) end
    local full, pick = g.enforced and groups.is_full(g, group, s.concurrency), {
      group = group, id = id, number = string.format('%d', tonumber(heads[2]) % groups.BAND), from = 'group', tag = tag,
      slot = 0, weight = s.weight, following = heads[3],
    }
    if g.trusts and not full and not s.limited then
      pick.bucket = groups.bucket(g, group, s)
      -- Nothing is owed: it may go, whatever it costs.
      if not pick.bucket or pick.bucket.origin + pick.bucket.tat <= g.now then return pick end
    end
    pick.cost, pick.deferred, pick.costs, pick.deadline = job_cost(g.base .. id)
    local runs = groups.runs(g, pick.deferred, pick.deadline)
    local paced = runs and g.enforced
    if paced and full then return groups.hold_back(g, group, tag, 'full', us_text(g.now)) end
    pick.bucket = paced and (pick.bucket or groups.bucket(g, group, s)) or nil
    if pick.bucket then pick.slot = groups.slot(g, pick.bucket, pick.cost) end
    -- As a pause of the queue, in every mode.
    pick.hold = runs and s.limited or nil
    pick.slot = math.max(pick.slot, pick.hold or 0)
    return groups.within(g, pick, by, paced)
  end

  -- Whether the first group that its rate holds waits for a job that another script than ours has removed. It does no
  -- longer: its next job may go sooner, and without one it is in no line.
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
      g.soonest = tonumber(redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0, 'WITHSCORES')[2]) or math.huge
    end
    return g.soonest
  end

  -- When the first of the groups that are held for a time may be ready by the end of what was set for it, µs.
  function groups.first_end(g)
    local ends = g.has_settings and redis.call('ZRANGE', groups.key(g, 'ends'), 0, groups.DUE - 1, 'WITHSCORES') or {}
    for i = 1, #ends, 2 do
      for _, state in ipairs({ 'limited', 'full' }) do
        if redis.call('ZSCORE', groups.key(g, state), ends[i]) then return tonumber(ends[i + 1]) end
      end
    end
    return math.huge
  end

  -- When one of the groups that are all held may be ready, µs: at its slot, or at the end of its pause or of what was set
  -- for it, ahead of which (µs) no job is granted. math.huge if all are paused for good, nil if a job has to end first.
  function groups.held_until(g, ahead)
    local paused = tonumber(redis.call('ZRANGE', groups.key(g, 'paused'), 0, 0, 'WITHSCORES')[2])
    local first = math.min(groups.first_limited(g), math.min(paused or math.huge, groups.first_end(g)) + ahead)
    return (paused or first < math.huge) and first or nil
  end

  -- The next job to leave: {group, id, from (wait, prioritized or group), number (its score in `prioritized`), tag,
  -- slot: the earliest, µs, that its group allows; what lib/job reads of it, if that was read (not where nothing holds
  -- it and g.trusts is set: then the caller reads it); with limits of its group `parts`, as in lib/group-limits; of a
  -- job of a group the job behind it}. One of a group has to be taken (groups.take) before it leaves. soon: the next
  -- slot of the queue, up to which a group is not held; latest: if all groups are held, one may go ahead to a slot by then. Second, if there is none: the first slot of a
  -- group (µs), nil if that depends on the end of a job or of a pause; 0 if more groups have to be tried.
  function groups.pick(g, soon, latest)
    groups.begin(g)
    groups.plain(g)
    local due = math.min(soon, latest)
    if groups.first_limited(g) <= due then groups.release_due(g, 'limited', due) end
    if g.plain_id and g.defaults.ungrouped == 'first' then
      local tag = groups.ready_tag(g, '')
      local pick = tag and groups.try_plain(g, tag, soon)
      if pick then return pick end
    end
    for _ = 1, groups.TRIES do
      local first, tag = groups.first_ready(g)
      local by = soon
      if not first then
        local slot = groups.first_limited(g)
        if slot <= latest then
          groups.release(g, redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0)[1], 'limited')
          first, tag = groups.first_ready(g)
          by = latest
        elseif slot == math.huge or not groups.forget_gone(g) then
          return nil, groups.held_until(g, latest - g.now)
        end
      end
      local pick = first and groups.try(g, first, tag, by)
      if pick then return pick end
    end
    return nil, 0
  end

  -- If all groups are held, the first slots of those whose rate holds them, µs, ascending: at most `most`. Nil if one is
  -- ready: only the queue holds it.
  function groups.slots(g, most)
    if redis.call('EXISTS', groups.key(g, 'ready'), groups.key(g, 'stale')) > 0 then return nil end
    local found, slots = redis.call('ZRANGE', groups.key(g, 'limited'), 0, most - 1, 'WITHSCORES'), {}
    for i = 2, #found, 2 do slots[#slots + 1] = tonumber(found[i]) end
    return slots
  end

  -- The earliest slot of the job behind one that has left; 0 if it will only be failed.
  function groups.next_slot(g, pick)
    local cost, deferred, costs, deadline = job_cost(g.base .. pick.following)
    local slot = pick.bucket and groups.slot(g, pick.bucket, cost) or 0
    if pick.parts then slot = math.max(slot, (g.limits.slot(pick.parts, cost, costs))) end
    slot = math.max(slot, pick.hold or 0)
    return (deferred or (deadline and slot > deadline)) and 0 or slot
  end

  -- The picked job has left with this slot (µs). runs: false for one that will only be failed
  function groups.served(g, pick, slot, cost, runs)
    g.v, g.changed = math.max(g.v, pick.tag), true
    local tag = pick.tag + (runs and math.max(1, math.floor(cost * groups.UNIT / (pick.weight or 1) + 0.5)) or 0)
    if runs and pick.parts then g.limits.charge(pick.parts, slot) end
    if pick.group == '' then
      groups.move(g, '', tag)
      g.plain_known = false
      return
    end
    local b, following = pick.bucket, pick.following
    redis.call('ZREM', g.base .. 'meta:group:jobs:' .. pick.group, pick.id)
    if runs and g.tracked then groups.hold(g, pick.group, pick.id) end
    if runs and b then
      bucket_charge(b, cost, slot - b.origin)
      groups.keep_bucket(g, pick.group, b)
    end
    if not following then
      g.occupied[pick.group] = nil
      return groups.leave_ready(g, pick.group, tag)
    end
    local next_slot = (b or pick.parts or pick.hold) and groups.next_slot(g, pick) or 0
    if next_slot > g.now then return groups.hold_back(g, pick.group, tag, 'limited', us_text(next_slot)) end
    groups.move(g, pick.group, tag)
  end

  -- Reads the groups of jobs that end in this call together.
  function groups.expect_ends(g, ids)
    if not g.tracked then return end
    g.group_of = {}
    local held = g.base .. 'meta:groups:held'
    local function running(...) return redis.call('HMGET', held, ...) end
    groups.read_each(ids, running, function(id, group) g.group_of[id] = group end)
  end

  -- A job no longer runs: its group may have a place now. Returns whether a group became ready.
  function groups.left(g, id)
    if g.tracked == false then return false end
    local group = g.group_of and g.group_of[id]
    if group == nil then group = redis.call('HGET', g.base .. 'meta:groups:held', id) end
    if not group then return false end
    groups.unhold(g, group, id)
    return groups.release(g, group, 'full')
  end

  -- A job goes back to its place, as if it had not left. number: its score in `prioritized`
  function groups.back_in(g, id, number)
    groups.left(g, id)
    local group, priority = groups.of_job(g.base, id)
    if group then groups.insert(g, group, id, priority, tonumber(number)) end
  end

  -- A job is delayed from now on, or waits for its children ('add'); or it does no longer ('remove').
  function groups.note_later(g, id, verb)
    local group = groups.of_job(g.base, id)
    if group then group_later[verb](g.base, group, id) end
  end

  -- The `redis` for BullMQ's scripts: jobs of groups that they add to the wait list are sorted in, those that leave the
  -- running ones free their places, and those that are removed leave their groups. g.adding: {group, priority} of the
  -- jobs that are added, false for jobs without a group, nil if it is not known.
  function groups.handlers(g, redis)
    local call = redis.call
    local wait, active, prioritized = g.base .. 'wait', g.base .. 'active', g.base .. 'prioritized'
    local delayed, parents = g.base .. 'delayed', g.base .. 'waiting-children'
    local function push(command, key, id, ...)
      if key ~= wait then return call(command, key, id, ...) end
      if select('#', ...) > 0 then
        for _, each in ipairs({ id, ... }) do push(command, key, each) end
        return 1
      end
      local group, priority
      if g.adding then group, priority = g.adding[1], g.adding[2]
      elseif g.adding == nil then
        group, priority = groups.of_job(g.base, id)
        if group then group_later.remove(g.base, group, id) end
      end
      if not group then
        g.plain_known = false
        return call(command, key, id)
      end
      groups.insert(g, group, id, priority)
      return 1
    end
    return {
      LPUSH = push, RPUSH = push,
      ZREM = function(command, key, id, ...)
        if key == prioritized then groups.removed(g, id)
        elseif (key == delayed or key == parents) and select('#', ...) == 0 then groups.note_later(g, id, 'remove') end
        return call(command, key, id, ...)
      end,
      LREM = function(command, key, count, id)
        local removed = call(command, key, count, id)
        if key == active and removed > 0 then groups.left(g, id) end
        if key == wait and removed > 0 then groups.removed_plain(g) end
        return removed
      end,
    }
  end

  -- The same, for scripts that also put jobs where they hold a place without being in line.
  function groups.storing_handlers(g, redis)
    local call, handlers = redis.call, groups.handlers(g, redis)
    function handlers.ZADD(command, key, score, id, ...)
      if key == g.base .. 'prioritized' then g.plain_known = false end
      if key == g.base .. 'delayed' or key == g.base .. 'waiting-children' then groups.note_later(g, id, 'add') end
      return call(command, key, score, id, ...)
    end
    return handlers
  end

  return groups
end
