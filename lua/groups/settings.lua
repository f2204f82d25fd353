local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'

-- Changes what is set for single groups (meta:groups:settings).
local group_settings = {
  -- By a worker that limits a group, and by feedback: what was reported before stays in force until its end.
  HOLDS = { limited = true, slowed = true, crowded = true },
}

-- The bucket takes over what applied until now.
function group_settings.settle(g, group)
  local b = g:bucket(group, g:settings(group))
  if b then g:keep_bucket(b) end
end

function group_settings.stored(g, group)
  local text = redis.call('HGET', g:key('settings'), group)
  return text and cjson.decode(text) or { fields = {} }
end

-- Sets fields of a group, or lifts them. change: field -> value, or {clear: true}; until_ms: nil if without end;
-- lifts_others: whether all other fields are lifted. A pause or a hold is in force at once, not at the next turn of the
-- group, so that counts agree with its state. Returns what is set for the group now.
function group_settings.change(g, group, change, by, reason, until_ms, lifts_others)
  group_settings.settle(g, group)
  local own, now_ms = group_settings.stored(g, group), math.floor(g.now / 1000)
  for field, entry in pairs(own.fields) do
    local over = entry['until'] and entry['until'] <= now_ms
    if over then g:release_held(group) end
    if lifts_others or over then own.fields[field] = nil end
  end
  for field, value in pairs(change) do
    local before, ends = own.fields[field], until_ms
    if type(value) == 'table' and value.clear then
      own.fields[field] = nil
    else
      -- Of two holds that were reported, the one of more effect, for as long as either of them.
      if before and group_settings.HOLDS[field] then
        if field == 'crowded' then value = math.min(value, before.value)
        elseif field == 'slowed' and shapes.interval(value) < shapes.interval(before.value) then value = before.value end
        ends = math.max(ends, before['until'])
      end
      own.fields[field] = { value = value, by = by, reason = reason, at = now_ms, ['until'] = ends }
    end
  end
  own.at = as_text.us(g.now)
  g.has_settings, g.known[group] = true, nil
  if next(own.fields) == nil then
    redis.call('HDEL', g:key('settings'), group)
    if redis.call('EXISTS', g:key('settings')) == 0 then g:note_unused('settings') end
    -- The defaults apply from now on, not since they were set.
    g.known[group] = setmetatable({ changed_at = g.now }, { __index = g.defaults })
    if g.defaults.interval then g:note_change(group, g.now) end
  else
    g:note_used('settings')
    redis.call('HSET', g:key('settings'), group, cjson.encode(own))
  end
  g:note_ends(group)
  group_settings.settle(g, group)
  local s = g:settings(group)
  if s.concurrency and not g.tracked then g:track() end
  local tag = (s.paused or s.limited) and g:ready_tag(group)
  if tag then g:hold_as_set(group, tag, s) end
  return own.fields
end

-- As above, by hand: what held the group before is looked at anew.
function group_settings.set(g, group, ...)
  for _, state in ipairs({ 'limited', 'full', 'paused', 'stale' }) do g:release(group, state) end
  return group_settings.change(g, group, ...)
end

return group_settings
