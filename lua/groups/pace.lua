local changes = use 'feedback/changes'
local pacing = use 'feedback/pacing'
local subjects = use 'feedback/subjects'
local group_settings = use 'groups/settings'
local as_text = use 'redis/as-text'

-- The rate of a group, or of one value of a limit, that its downstream refused (groups/feedback) rises again by the law
-- of feedback/pacing, as departures use it: workers need not report successful calls. The rate is the subject's setting
-- `paced`, and the law's state is in its feedback. Adds these functions to the table of groups/queue-groups.
--   meta:groups:climbs, meta:limits:climbs  group, or cell -> when its rate may rise next, µs
--   meta:groups:used, meta:limits:used      hash, group, or cell -> units that departed at its rate since then
-- g.paces: whether there may be such groups or values.
local function group_pace(groups)
  -- An idle subject is forgotten after this time: its rate is what it was before.
  groups.PACE_MS = 3600000

  -- A rate as stored, [limit, period ms], in whole thousandths a second if that is precise enough.
  local function readable(interval)
    if interval > 1000000 then return { 1, interval / 1000 } end
    return { math.floor(1000000000 / interval) / 1000, 1000 }
  end

  local function forget_pace(g, climbs, used, name)
    redis.call('ZREM', g.base .. 'meta:' .. climbs, name)
    redis.call('HDEL', g.base .. 'meta:' .. used, name)
  end

  -- Gives the subject (feedback/subjects) this pace; nil: none. by, reason: who slowed it, and why
  function groups.set_pace(g, subject, pace, by, reason)
    forget_pace(g, subject.climbs, subject.used, subject.name)
    if not pace then return subject.set('paced', { clear = true }, by, reason) end
    local now_ms = math.floor(g.now / 1000)
    redis.call('HSET', g.base .. 'meta:groups', 'paces', 1)
    g.paces = true
    redis.call('ZADD', g.base .. 'meta:' .. subject.climbs, as_text.us((now_ms + pacing.quiet(pace)) * 1000), subject.name)
    subject.set('paced', readable(pace.interval), by, reason, now_ms + groups.PACE_MS)
  end

  -- The quiet period of a subject may be over. doc: its feedback; text: whether there is any
  local function climb(g, subject, doc, text)
    local pace, s = doc.pace, subject.settings()
    -- Someone has ended it, or has removed the rate.
    if not (pace and s.is_paced and s.configured) then
      doc.pace = nil
      if text and pace then redis.call('SET', subject.doc, cjson.encode(doc), 'KEEPTTL') end
      return groups.set_pace(g, subject, nil, '', 'feedback')
    end
    local now_ms = math.floor(g.now / 1000)
    pace.oks = pace.oks + (tonumber(redis.call('HGET', g.base .. 'meta:' .. subject.used, subject.name) or nil) or 0)
    -- A pause is no quiet period.
    local from, reached = pacing.rise(pace, s.configured, now_ms, math.max(pace.at, doc.held or 0), 1)
    if reached == s.configured then doc.pace = nil end
    groups.set_pace(g, subject, doc.pace, doc.by, doc.reason)
    redis.call('SET', subject.doc, cjson.encode(doc), 'PX', groups.PACE_MS)
    if not from or reached == from then return end
    subject.freed()
    changes.publish(g.base, {
      kind = 'rise', rate = changes.rate_text(reached), from = changes.rate_text(from), scope = subject.scope,
      source = doc.source, reason = doc.reason, by = doc.by, at = now_ms,
    })
  end

  local function known_of(key)
    local text = redis.call('GET', key)
    return text and cjson.decode(text) or {}, text
  end

  local function climb_group(g, group)
    local subject = subjects.of_group(g, group)
    climb(g, subject, known_of(subject.doc))
  end

  local function climb_cell(g, cell)
    local doc, text = known_of(g.base .. 'meta:limits:feedback:' .. cell)
    local l, value, keys = g.limits.of_value(cell)
    if not l then return forget_pace(g, 'limits:climbs', 'limits:used', cell) end
    climb(g, subjects.of_key(g, g.limits, l, value, keys, doc.tier), doc, text)
  end

  -- The same for all subjects, some of them by each call. Returns whether there are none.
  local function climb_each(g, climbs, climb_one)
    local due = redis.call('ZRANGEBYSCORE', climbs, '-inf', as_text.us(g.now), 'LIMIT', 0, groups.DUE)
    for _, name in ipairs(due) do climb_one(g, name) end
    return #due == 0 and redis.call('EXISTS', climbs) == 0
  end

  function groups.climb_due(g)
    if not g.paces then return end
    local none = climb_each(g, groups.key(g, 'climbs'), climb_group)
    if g.limits then none = climb_each(g, g.base .. 'meta:limits:climbs', climb_cell) and none end
    if none then
      redis.call('HDEL', g.base .. 'meta:groups', 'paces')
      g.paces = false
    end
  end

  -- The first job of a group that rested has departed: its rate rises from that slot (µs) on, which may be ahead.
  function groups.rise(g, group, slot)
    local since_ms = math.ceil(slot / 1000)
    -- Its bucket has that rate already.
    g.known[group], g.rested[group] = g.rested[group], nil
    group_settings.change(g, group, { ramp = since_ms }, '', 'rampUp', since_ms + math.ceil(g.ramp_up.overMs))
  end

  -- A job has departed at the rate of a slowed group.
  function groups.note_use(g, group, cost)
    redis.call('HINCRBYFLOAT', groups.key(g, 'used'), group, as_text.exact(cost))
  end
end

return group_pace
