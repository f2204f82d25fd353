local group_settings = use 'groups/settings'
local limit_control = use 'limits/control'
local own_values = use 'limits/own-values'
local limit_state = use 'limits/state'
local shapes = use 'shape/shapes'

-- A part of the queue that feedback holds or slows: a group; one value of a limit with `by` (limits/own-values), which
-- holds the jobs of that value alone; or a member of a pool, which then takes no job. Each is a table:
--   scope                     as a change names it
--   doc                       the Redis key of its feedback (groups/feedback)
--   climbs, used, name        where groups/pace notes when its rate may rise, and how much of it was used
--   slows                     whether it has a rate, or can have one
--   settings()                its current settings: limited, interval, configured, is_paced, concurrency
--   entries(), settings_at(entries, at)  its entries, and the settings at a time by these
--   set(field, value, by, reason, until_ms)  sets a field for a time, or lifts it ({clear: true}); returns the entry
--   last_slot()               the last slot granted, µs, or nil
--   freed()                   it may go sooner
--   lower(remaining)          for a value: no more is left than the downstream says
local subjects = {}

function subjects.of_group(g, group)
  local s = {
    scope = { group = group }, doc = g.base .. 'meta:group:feedback:' .. group, climbs = 'groups:climbs',
    used = 'groups:used', name = group, slows = true, crowds = true,
  }
  function s.settings() return g:settings(group) end
  function s.entries() return group_settings.stored(g, group).fields end
  function s.settings_at(entries, at) return g:settings_at(entries, at) end
  function s.set(field, value, by, reason, until_ms)
    return group_settings.change(g, group, { [field] = value }, by, reason, until_ms)[field]
  end
  function s.last_slot() return g:last_slot(group) end
  function s.freed() g:release(group, 'limited') end
  return s
end

-- A limit that several queues share is held for all of them, by a block of its key. It has no own value to slow.
local function of_shared_key(g, s, l, value)
  local state = l.states .. value
  local function block_ms()
    return math.ceil((tonumber(redis.call('ZSCORE', l.control .. ':blocks', state) or nil) or 0) / 1000)
  end
  function s.settings_at(entries, at)
    return { limited = entries.limited['until'] * 1000 > at or nil, interval = l.interval }
  end
  function s.entries() return { limited = { ['until'] = block_ms() } } end
  function s.settings() return s.settings_at(s.entries(), g.now) end
  function s.set(_, _, _, _, until_ms)
    limit_control.block(l.control, state, g.now, until_ms * 1000)
    return { value = true, ['until'] = until_ms }
  end
  return s
end

-- l, value: as limits.named returns them; keys: name -> value; tier: of the job, nil for none
function subjects.of_key(g, limits, l, value, keys, tier)
  local cell, state = l.name .. ':' .. value, l.states .. value
  local s = {
    scope = { limit = l.name, keys = keys }, doc = g.base .. 'meta:limits:feedback:' .. cell, climbs = 'limits:climbs',
    used = 'limits:used', name = cell, slows = l.interval and not l.shared, tier = tier,
  }
  function s.freed() g:cell_freed(cell, keys.group or '') end
  local function own_limit() return l.shared and l or s.settings() end
  local function open(own) return own.verbs.open(state, own, g.now) end
  function s.lower(remaining)
    local own = own_limit()
    limit_state.lower(own, open(own), remaining)
  end
  function s.last_slot()
    local ahead = open(own_limit()).ahead
    return ahead and ahead > 0 and g.now + math.ceil(ahead) or nil
  end
  if l.shared then return of_shared_key(g, s, l, value) end
  function s.settings() return own_values.in_force(g.base, l, value, tier, g.now) end
  function s.entries() return (own_values.stored(g.base, l.name, value) or { fields = {} }).fields end
  function s.settings_at(entries, at) return own_values.at(l, entries, at, tier) end
  function s.set(field, given, by, reason, until_ms)
    local before = s.entries()[field]
    if before and before['until'] * 1000 > g.now and group_settings.HOLDS[field] then
      given, until_ms = group_settings.stronger(field, given, until_ms, before)
    end
    return limits.set_value(g, l, value, keys, { [field] = given }, by, reason, until_ms)[field]
  end
  return s
end

-- part: as limits/queue-limits.member returns it
function subjects.of_member(base, now, part)
  local l, keys = part.l.of_pool.member, { member = part.member }
  local s = {
    scope = { limit = l.name, member = part.member }, doc = base .. 'meta:limits:feedback:' .. part.state, slows = false,
  }
  function s.entries() return (own_values.stored(base, l.name, part.member) or { fields = {} }).fields end
  function s.settings_at(entries, at)
    return { limited = own_values.at(l, entries, at).held_until, interval = l.interval }
  end
  function s.settings() return s.settings_at(s.entries(), now) end
  -- Held like a member that was paused by hand.
  function s.set(_, _, by, reason, until_ms)
    local fields = own_values.set(base, l, part.member, keys, now, { held = true }, by, reason, until_ms)
    shapes.note_own_values(base .. 'meta:shape', base, l.name, now)
    return fields.held
  end
  function s.last_slot() return now + math.ceil(part.ahead) end
  function s.lower(remaining) limit_state.lower(part.l, part.s, remaining) end
  return s
end

return subjects
