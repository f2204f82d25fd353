local bucket = use 'meter/bucket'
local as_text = use 'redis/as-text'
local ramp = use 'shape/ramp'

-- Changes the settings of single groups (meta:groups:settings).
local group_settings = {
  -- By a worker that limits a group, and by feedback: reported holds stay until their end.
  HOLDS = { limited = true, slowed = true, crowded = true },
}

-- Of two reported holds, the one with more effect, for as long as either of them. before: the entry of the other
function group_settings.stronger(field, value, until_ms, before)
  if field == 'crowded' then value = math.min(value, before.value)
  elseif field == 'slowed' and bucket.interval(value) < bucket.interval(before.value) then value = before.value end
  return value, math.max(until_ms, before['until'])
end

-- The bucket takes over the settings until now.
function group_settings.settle(g, group)
  local b = g:bucket(group, g:settings(group))
  if b then g:keep_bucket(b) end
end

function group_settings.stored(g, group)
  local text = redis.call('HGET', g:key('settings'), group)
  return text and cjson.decode(text) or { fields = {} }
end

-- The hold of a group as a whole by these fields: the longest one, {from, since, rose} in ms as shape/ramp has a pause,
-- or nil.
local function hold_of(fields, now_ms)
  local found
  for _, field in ipairs({ 'paused', 'limited' }) do
    local entry = fields[field]
    local ends = entry and (entry['until'] or math.huge)
    if entry and ends > now_ms and not (found and found.since >= ends) then
      found = { from = entry.from or entry.at, since = ends, rose = entry.rose }
    end
  end
  return found
end

-- A hold of a group begins, ends or changes: after a long one its rate rises slowly, if the shape says so. before:
-- hold_of
local function note_ramp(g, own, before, now_ms)
  local now_held = g.ramp_up and hold_of(own.fields, now_ms)
  if not g.ramp_up or not (before or now_held) then return end
  local pause = now_held or ramp.resumed(before, now_ms)
  local began = pause.since < math.huge and ramp.began(pause)
  local ends = began and began + math.ceil(g.ramp_up.overMs) or 0
  own.fields.ramp = ends > now_ms and { value = began, by = '', reason = 'rampUp', at = now_ms, ['until'] = ends } or nil
end

-- Sets fields of a group, or lifts them. change: field -> value, or {clear: true}; until_ms: nil if without end;
-- lifts_others: whether all other fields are lifted. A pause or a hold applies at once, not at the next turn of the
-- group, so that counts agree with its state. Returns the group's own settings.
function group_settings.change(g, group, change, by, reason, until_ms, lifts_others)
  group_settings.settle(g, group)
  local own, now_ms = group_settings.stored(g, group), math.floor(g.now / 1000)
  local held, rise = hold_of(own.fields, now_ms), own.fields.ramp
  local pause = ramp.paused(held or rise and ramp.begins(rise.value), now_ms, now_ms)
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
      if before and group_settings.HOLDS[field] then value, ends = group_settings.stronger(field, value, ends, before) end
      local holds = field == 'paused' or field == 'limited'
      own.fields[field] = {
        value = value, by = by, reason = reason, at = now_ms, ['until'] = ends, from = holds and pause.from or nil,
        rose = holds and pause.rose or nil,
      }
    end
  end
  -- A rise that a departure begins, perhaps ahead of the end of a hold, goes by that.
  if not change.ramp then note_ramp(g, own, held, now_ms) end
  own.at = as_text.us(g.now)
  g.has_settings, g.known[group] = true, nil
  if next(own.fields) == nil then
    redis.call('HDEL', g:key('settings'), group)
    if redis.call('EXISTS', g:key('settings')) == 0 then g:note_unused('settings') end
    -- The defaults apply from now on, not since they were set.
    g.known[group] = setmetatable({ changed_at = g.now, times = {} }, { __index = g.defaults })
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
  if s.paused or s.limited then g:let_lines_pass(group) end
  return own.fields
end

-- As above, by hand: earlier holds of the group are checked again.
function group_settings.set(g, group, ...)
  for _, state in ipairs({ 'limited', 'full', 'paused', 'stale' }) do g:release(group, state) end
  return group_settings.change(g, group, ...)
end

return group_settings
