local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local service = use 'meter/service'
local as_text = use 'redis/as-text'
local ramp = use 'shape/ramp'

-- The settings of a group (groups/queue-groups): the defaults, its own, and their ends; and its bucket, which these
-- rules shape. Adds these functions to the table of groups/queue-groups.
local function group_rules(groups)
  -- The jobs of a queue that may run at once, nil without such a limit. Read once in a call.
  function groups.queue_places(g)
    if g.all_places == nil then g.all_places = tonumber(redis.call('HGET', g.base .. 'meta', 'concurrency') or nil) or false end
    return g.all_places or nil
  end

  -- How many jobs of a group may run. given: a number, or their share of those of the queue: '25%'
  local function most_running(g, given)
    local share = type(given) == 'string' and tonumber((string.gsub(given, '%%$', '')))
    if not share then return given end
    local all = groups.queue_places(g)
    -- Shares have three decimals.
    return all and math.max(1, math.floor(math.floor(share * 1000 + 0.5) * all / 100000))
  end

  function groups.fields(g, given)
    local interval = given.rate and bucket.interval(given.rate)
    return {
      interval = interval, configured = interval, burst = given.burst or 1,
      is_strict = given.order == 'strict', concurrency = given.order == 'strict' and 1 or most_running(g, given.concurrency),
      capacity = given.capacity, has_rate = given.rate ~= nil, share = given.share, weight = given.weight or 1,
      ungrouped = given.ungrouped, on_failed = given.onFailed, lowest = g.lowest,
      rate = given.rate and given.rate[3] and given.rate or nil,
    }
  end

  -- The settings at a time of a group with these entries. Second, how many of these apply.
  function groups.settings_at(g, entries, at)
    local given, live, soonest = {}, 0, math.huge
    for field, value in pairs(g.given) do given[field] = value end
    -- Of the defaults, only earlier rates and bursts are known.
    if at < g.now then
      for _, one in ipairs(g.rates) do
        if one.at <= at then given.rate, given.burst = one.rate, one.burst end
      end
    end
    for field, entry in pairs(entries) do
      local ends = entry['until'] and entry['until'] * 1000 or math.huge
      if ends > at then
        live, soonest = live + 1, math.min(soonest, ends)
        if entry.value == cjson.null then given[field] = nil
        elseif entry.value == true then given[field] = ends
        else given[field] = entry.value end
      end
    end
    local s = groups.fields(g, given)
    if given.ramp and s.interval then
      -- While the group is held, its rate is the one after that.
      local share, began, ends = ramp.share(g.ramp_up, given.ramp, math.max(at, given.paused or 0, given.limited or 0))
      if ends then
        s.interval, s.ramped_at = bucket.ceil(s.interval / share), math.min(began, at)
        soonest = math.min(soonest, ends)
      end
    end
    if given.paced then s.interval, s.is_paced = math.max(s.interval or 0, bucket.interval(given.paced)), true end
    if given.slowed then s.interval = math.max(s.interval or 0, bucket.interval(given.slowed)) end
    if given.crowded then s.concurrency = math.min(s.concurrency or math.huge, given.crowded) end
    s.paused, s.limited, s.ends = given.paused, given.limited, soonest
    return s, live
  end

  -- Notes in the settings s of a group with these entries: changed_at, when its current rate and burst began; times, when
  -- earlier ones did since its bucket was stored; and entries, from which settings_at has these. since: when the entries
  -- were set, -1 without any; times: when some of them ended
  function groups.note_times(g, s, entries, since, times)
    for _, one in ipairs(g.rates) do
      if one.at > since then times[#times + 1] = one.at end
    end
    table.sort(times)
    -- Of a ramp, the bucket takes over the last step alone: those before it were lower.
    s.changed_at = math.max(times[#times] or since, s.ramped_at or 0)
    if times[#times] == s.changed_at then times[#times] = nil end
    s.times, s.entries = times, entries
  end

  -- The settings of a group: the defaults, and its own. paused, limited: until when (µs), or nil; changed_at, times and
  -- entries: of note_times
  function groups.settings(g, group)
    if g.known[group] then return g.known[group] end
    local text = g.has_settings and redis.call('HGET', groups.key(g, 'settings'), group)
    if not text then return g.defaults end
    local own, over = cjson.decode(text), {}
    local at = tonumber(own.at)
    for _, entry in pairs(own.fields) do
      local ends = entry['until'] and entry['until'] * 1000 or math.huge
      if ends <= g.now then over[#over + 1] = math.max(at, ends) end
    end
    local has_ended = #over > 0
    local s, live = groups.settings_at(g, own.fields, g.now)
    groups.note_times(g, s, own.fields, at, over)
    local set = own.fields.rate
    local ends = set and set['until'] and set['until'] * 1000 or 0
    if ends > g.now then s.lowest = math.max(s.lowest or 0, groups.settings_at(g, own.fields, ends).interval or 0) end
    g.known[group] = s
    if g.began and has_ended then groups.forget(g, group, s, own, live) end
    return s
  end

  -- The settings for the next departure of a group: if it has been without departures for so long that its rate has to
  -- rise (shape/ramp), that stays at its beginning until a job departs.
  function groups.settings_next(g, group)
    local s = groups.settings(g, group)
    if not (g.rests and s.configured) then return s end
    if g.rested[group] then return g.rested[group] end
    local text = redis.call('GET', g.base .. 'meta:group:bucket:' .. group)
    local b = text and groups.read_bucket(g, s, text, groups.rate_text(g, s))
    if b and not meter.rests(b, g.now, ramp.rests_us(g.ramp_up, s.configured, s.interval, s.burst)) then return s end
    local rested = {}
    for field, value in pairs(s) do rested[field] = value end
    rested.interval = math.max(s.interval, bucket.ceil(s.configured / ramp.share(g.ramp_up, g.now / 1000, g.now)))
    rested.stored, rested.service, rested.times, rested.changed_at, rested.rests = nil, nil, {}, g.now, true
    g.rested[group] = rested
    return rested
  end

  -- The settings of a group until `at` (µs) are forgotten: feedback/settling has to know that the rate was another one.
  function groups.note_change(g, group, at)
    local key = groups.key(g, 'changed')
    redis.call('ZREMRANGEBYSCORE', key, '-inf', as_text.us(g.now - groups.CHANGED_US))
    redis.call('ZADD', key, as_text.us(at), group)
    redis.call('PEXPIRE', key, as_text.us(groups.CHANGED_US / 1000))
  end

  -- Since when, at the latest, the current settings of a group apply, µs. s: as groups.settings returned it
  function groups.in_force_since(g, group, s)
    local noted = tonumber(redis.call('ZSCORE', groups.key(g, 'changed'), group) or nil) or 0
    local forgotten = g.now - groups.CHANGED_US
    return math.max(s.changed_at, noted, forgotten > 0 and forgotten or 0)
  end

  -- Forgets ended settings of the group, once its bucket has taken over their end.
  function groups.forget(g, group, s, own, live)
    local b, key = groups.bucket(g, group, s), groups.key(g, 'settings')
    if b then
      groups.keep_bucket(g, b)
      groups.note_change(g, group, s.changed_at)
    end
    s.times = {}
    for field, entry in pairs(own.fields) do
      if entry['until'] and entry['until'] * 1000 <= g.now then own.fields[field] = nil end
    end
    if live > 0 then return redis.call('HSET', key, group, cjson.encode(own)) end
    redis.call('HDEL', key, group)
    if redis.call('EXISTS', key) == 0 then groups.note_unused(g, 'settings') end
    redis.call('ZREM', groups.key(g, 'ends'), group)
  end

  -- Notes when the next of its settings ends.
  function groups.note_ends(g, group)
    local ends, key = groups.settings(g, group).ends or math.huge, groups.key(g, 'ends')
    if ends < math.huge then redis.call('ZADD', key, as_text.us(ends), group) else redis.call('ZREM', key, group) end
  end

  -- A temporary setting of a group has ended: it may have held the group.
  function groups.release_held(g, group)
    for _, state in ipairs({ 'limited', 'full' }) do groups.release(g, group, state) end
  end

  -- The same for all groups, some of them by each call.
  function groups.end_settings(g)
    if not g.has_settings then return end
    local over = redis.call('ZRANGEBYSCORE', groups.key(g, 'ends'), '-inf', as_text.us(g.now), 'LIMIT', 0, groups.DUE)
    for _, group in ipairs(over) do
      groups.note_ends(g, group)
      groups.release_held(g, group)
    end
  end

  -- Ended settings of a group end at once, not with the next departure.
  function groups.end_own(g, group)
    local ends = g.has_settings and tonumber(redis.call('ZSCORE', groups.key(g, 'ends'), group) or nil)
    if not ends or ends > g.now then return end
    local began = g.began
    g.began = true
    groups.note_ends(g, group)
    groups.release_held(g, group)
    g.began = began
  end

  -- An empty bucket or, after a loss of state, one that was full until the end of earlier grants.
  function groups.new_bucket(g, s)
    local full = g.filled > 0 and bucket.ceil(s.burst * s.interval) or 0
    return groups.timed({
      origin = g.filled > 0 and g.filled or g.now, tat = full, last = 0, now = 0, interval = s.interval, burst = s.burst,
    }, s)
  end

  -- Redis has lost, or may have lost, charges of buckets: nothing departs before `ready`, and none has burst left then.
  -- Known state of a bucket counts too: a job that cost more than expected may have charged more than its burst.
  function groups.fill(g, ready)
    g.filled, g.changed, g.reset = math.max(g.filled, ready), true, true
  end

  -- With a rate that follows the clock, a bucket counts in service from its origin on (meter/meter).
  function groups.timed(b, s)
    s.service = s.service or (s.rate and service.of(s.rate, s.interval))
    b.service, b.schedule = s.service, groups.schedule_text(s)
    return b
  end

  -- Names the schedule of a rate, '' without one.
  function groups.schedule_text(s)
    s.schedule = s.schedule or (s.rate and ':' .. string.sub(redis.sha1hex(cjson.encode(s.rate)), 1, 8) or '')
    return s.schedule
  end

  function groups.reshape(g, b, s)
    if not s.interval then return end
    local at, text = math.min(g.now, s.changed_at), groups.schedule_text(s)
    if b.interval == s.interval and b.burst == s.burst and b.schedule == text then return end
    if b.schedule .. text == '' then return bucket.reshape(b, s.interval, s.burst, at - b.origin) end
    -- The service since the last slot is known for a fixed rate, and for the current schedule.
    local passed = 0
    if b.schedule == '' then passed = at - b.origin
    elseif b.schedule == text then passed = service.between(service.of(s.rate, b.interval), b.origin, at) end
    if at > b.origin then b.origin, b.tat = at, b.tat - passed end
    bucket.reshape(b, s.interval, s.burst, 0)
    groups.timed(b, s)
  end

  -- A bucket whose state is as old as `known` (µs) takes over the settings since then, one after the other.
  function groups.catch_up(g, b, s, known)
    -- Redis's clock went back to before the last change.
    if s.changed_at > g.now then return groups.reshape(g, b, s) end
    b.caught_up = known < s.changed_at
    if known < g.unknown_until then
      -- No time counts at an unknown rate.
      b.origin, known = math.max(b.origin, g.unknown_until), g.unknown_until
    end
    for i, at in ipairs(s.times) do
      if (s.times[i + 1] or s.changed_at) > known then
        local before = groups.settings_at(g, s.entries, at)
        before.changed_at = at
        groups.reshape(g, b, before)
      end
    end
    groups.reshape(g, b, s)
  end

  -- The stored form of a bucket of these settings, after its origin and `tat`.
  function groups.rate_text(g, s)
    s.stored = s.stored
      or ' ' .. as_text.exact(s.interval) .. ' ' .. as_text.exact(s.burst) .. groups.schedule_text(s) .. ' ' .. as_text.us(g.back)
    return s.stored
  end

  -- The stored bucket under the current settings. text: nil if none is stored
  function groups.read_bucket(g, s, text, stored)
    if not text then return groups.new_bucket(g, s) end
    -- Most often, nothing has changed since.
    local same = string.sub(text, -#stored) == stored
      and not (s.times[1] and tonumber(string.match(text, '^%S+')) < s.changed_at)
    local origin, tat, interval, burst, schedule, back, known =
      string.match(text, same and '^(%S+) (%S+)' or '^(%S+) (%S+) (%S+) ([^ :]+)(:?%S*) (%S+) ?(%S*)$')
    local b = { origin = tonumber(origin), tat = tonumber(tat), last = 0, now = 0, interval = s.interval, burst = s.burst }
    groups.timed(b, s)
    if not same then
      local step = g.back - tonumber(back)
      b.origin, b.interval, b.burst, b.schedule = b.origin - step, tonumber(interval), tonumber(burst), schedule
      groups.catch_up(g, b, s, known == '' and b.origin or tonumber(known) - step)
    end
    if b.origin >= g.filled then return b end
    local full = groups.new_bucket(g, s)
    full.tat = math.max(full.tat, meter.at(full, meter.time(b, b.tat)))
    return full
  end

  -- Nil without a rate.
  function groups.bucket(g, group, s)
    if not s.interval then return nil end
    local key, stored = g.base .. 'meta:group:bucket:' .. group, s.stored or groups.rate_text(g, s)
    local b = groups.read_bucket(g, s, redis.call('GET', key), stored)
    b.key, b.stored, b.rests, b.lowest = key, stored, s.rests, s.lowest
    -- Only so many of the last changes are known later.
    if b.caught_up and g.began and not s.rests then groups.keep_bucket(g, b) end
    return b
  end

  -- The last slot of a group's bucket, µs; nil if the bucket is not stored, or if charges of it may be lost.
  function groups.last_slot(g, group)
    local text = redis.call('GET', g.base .. 'meta:group:bucket:' .. group)
    local origin, back = string.match(text or '', '^(%S+) %S+ %S+ %S+ (%S+)')
    local last = origin and tonumber(origin) - (g.back - tonumber(back))
    return last and last >= g.filled and last or nil
  end

  -- b: as groups.bucket returned it, and charged
  function groups.keep_bucket(g, b)
    local last = math.floor(b.last)
    local origin, tat = b.origin + last, b.tat - last
    if b.service then
      origin = meter.time(b, b.last)
      tat = b.tat - meter.at(b, origin)
    end
    -- Redis's clock may go back, but not by much.
    local ends = b.service and meter.time(b, b.tat) or origin + tat
    local rests_us = g.rests and ramp.rests_us(g.ramp_up, b.interval, b.interval, b.burst) or 0
    local seconds = math.ceil((bucket.kept_us(math.max(0, ends - g.now), b.interval, b.lowest) + rests_us) / 1000000)
    local kept_ms = g.kept_ms[seconds] or seconds .. '000'
    g.kept_ms[seconds] = kept_ms
    -- The same text, but faster for whole numbers.
    local is_whole = tat % 1 == 0 and tat < 1000000000000000
    local state = is_whole and string.format('%.0f %.0f', origin, tat) or as_text.us(origin) .. ' ' .. as_text.exact(tat)
    -- No later read takes over again what began before.
    local known = origin < g.now and ' ' .. as_text.us(g.now) or ''
    redis.call('SET', b.key, state .. b.stored .. known, 'PX', kept_ms)
  end

  function groups.slot(g, b, cost)
    return math.max(meter.time(b, bucket.slot(b, cost, meter.at(b, g.now))), g.now)
  end
end

return group_rules
