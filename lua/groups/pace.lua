local changes = use 'feedback/changes'
local pacing = use 'feedback/pacing'
local group_settings = use 'groups/settings'
local as_text = use 'redis/as-text'

-- The rate of a group that its downstream refused (groups/feedback) rises again by the law of feedback/pacing, as departures
-- use it: those who hear no refusal need not report. The group has the rate in its settings, as `paced`, and what the law
-- knows in its feedback (meta:group:feedback:<group>). Adds these verbs to the table of groups/queue-groups.
--   meta:groups:climbs   group -> when its rate may rise next, µs
--   meta:groups:used     hash, group -> units that left at its rate since then
-- g.paces: whether there may be such groups.
local function group_pace(groups)
  -- A group that is no longer served is forgotten: its rate is what it was before.
  groups.PACE_MS = 3600000

  local function feedback_key(g, group)
    return g.base .. 'meta:group:feedback:' .. group
  end

  -- A rate as it is stored, [limit, period ms], of whole thousandths a second where that says enough.
  local function readable(interval)
    if interval > 1000000 then return { 1, interval / 1000 } end
    return { math.floor(1000000000 / interval) / 1000, 1000 }
  end

  local function forget_pace(g, group)
    redis.call('ZREM', groups.key(g, 'climbs'), group)
    redis.call('HDEL', groups.key(g, 'used'), group)
  end

  -- The group has this pace from now on; nil: none. by, reason: who slowed it, and why
  function groups.set_pace(g, group, pace, by, reason)
    if not pace then
      forget_pace(g, group)
      return group_settings.change(g, group, { paced = { clear = true } }, by, reason)
    end
    local now_ms = math.floor(g.now / 1000)
    redis.call('HSET', g.base .. 'meta:groups', 'paces', 1)
    g.paces = true
    redis.call('HDEL', groups.key(g, 'used'), group)
    redis.call('ZADD', groups.key(g, 'climbs'), as_text.us((now_ms + pacing.quiet(pace)) * 1000), group)
    group_settings.change(g, group, { paced = readable(pace.interval) }, by, reason, now_ms + groups.PACE_MS)
  end

  -- The quiet period of a group may be over.
  local function climb(g, group)
    local text, s = redis.call('GET', feedback_key(g, group)), groups.settings(g, group)
    local doc = text and cjson.decode(text) or {}
    local pace = doc.pace
    -- Somebody has ended it, or has taken the rate away.
    if not (pace and s.is_paced and s.configured) then
      doc.pace = nil
      if text and pace then redis.call('SET', feedback_key(g, group), cjson.encode(doc), 'KEEPTTL') end
      return groups.set_pace(g, group, nil, '', 'feedback')
    end
    local now_ms = math.floor(g.now / 1000)
    pace.oks = pace.oks + (tonumber(redis.call('HGET', groups.key(g, 'used'), group) or nil) or 0)
    -- A pause is no quiet period.
    local from, reached = pacing.rise(pace, s.configured, now_ms, math.max(pace.at, doc.held or 0), 1)
    if reached == s.configured then doc.pace = nil end
    groups.set_pace(g, group, doc.pace, doc.by, doc.reason)
    redis.call('SET', feedback_key(g, group), cjson.encode(doc), 'PX', groups.PACE_MS)
    if not from or reached == from then return end
    groups.release(g, group, 'limited')
    changes.publish(g.base, {
      kind = 'rise', rate = changes.rate_text(reached), from = changes.rate_text(from), scope = { group = group },
      source = doc.source, reason = doc.reason, by = doc.by, at = now_ms,
    })
  end

  -- The same of all, some of them by each call.
  function groups.climb_due(g)
    if not g.paces then return end
    local climbs = groups.key(g, 'climbs')
    local due = redis.call('ZRANGEBYSCORE', climbs, '-inf', as_text.us(g.now), 'LIMIT', 0, groups.DUE)
    for _, group in ipairs(due) do climb(g, group) end
    if #due == 0 and redis.call('EXISTS', climbs) == 0 then
      redis.call('HDEL', g.base .. 'meta:groups', 'paces')
      g.paces = false
    end
  end

  -- A job has left. Of a group that rested, the rate rises from now on.
  function groups.rise(g, group)
    local since_ms = math.ceil(g.now / 1000)
    -- Its bucket has that rate already.
    g.known[group], g.rested[group] = g.rested[group], nil
    group_settings.change(g, group, { ramp = since_ms }, '', 'rampUp', since_ms + math.ceil(g.ramp_up.overMs))
  end

  -- A job has left at the rate of a group that is slowed.
  function groups.note_use(g, group, cost)
    redis.call('HINCRBYFLOAT', groups.key(g, 'used'), group, as_text.exact(cost))
  end
end

return group_pace
