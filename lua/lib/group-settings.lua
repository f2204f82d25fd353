--- @include "groups"

-- Changes what is set for single groups (meta:groups:settings).
-- One table: a script has no room for more than 200 local names.
local group_settings = {
  -- Holds that are only ever made longer: by a worker that limits a group, and by feedback.
  HOLDS = { limited = true, slowed = true, crowded = true },
}

-- The bucket takes over what applied until now.
function group_settings.settle(g, group)
  local b = g:bucket(group, g:settings(group))
  if b then g:keep_bucket(group, b) end
end

function group_settings.stored(g, group)
  local text = redis.call('HGET', g:key('settings'), group)
  return text and cjson.decode(text) or { fields = {} }
end

-- Sets fields of a group, or lifts them. change: field -> value, or {clear: true}; until_ms: nil if without end;
-- lifts_others: whether all other fields are lifted. Returns what is set for the group now.
function group_settings.change(g, group, change, by, reason, until_ms, lifts_others)
  group_settings.settle(g, group)
  local own, now_ms = group_settings.stored(g, group), math.floor(g.now / 1000)
  for field, entry in pairs(own.fields) do
    if lifts_others or (entry['until'] and entry['until'] <= now_ms) then own.fields[field] = nil end
  end
  for field, value in pairs(change) do
    local before = own.fields[field]
    if type(value) == 'table' and value.clear then
      own.fields[field] = nil
    elseif not (group_settings.HOLDS[field] and before and before['until'] > until_ms) then
      own.fields[field] = { value = value, by = by, reason = reason, at = now_ms, ['until'] = until_ms }
    end
  end
  own.at = us_text(g.now)
  if next(own.fields) == nil then
    redis.call('HDEL', g:key('settings'), group)
  else
    redis.call('HSET', g:key('settings'), group, cjson.encode(own))
  end
  g.has_settings, g.known[group] = true, nil
  g:note_ends(group)
  group_settings.settle(g, group)
  return own.fields
end
