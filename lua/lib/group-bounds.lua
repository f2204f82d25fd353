-- Whether groups have bounds of their own, by the defaults or as set for one of these. groups: the defaults (JSON)
local function group_bounds(base, groups, names)
  if string.find(groups, '"capacity":', 1, true) or string.find(groups, '"share":', 1, true) then return true end
  local settings = base .. 'meta:groups:settings'
  if redis.call('EXISTS', settings) == 0 then return false end
  -- Lua has room for some thousand.
  for i = 1, #names, 1000 do
    for _, text in ipairs(redis.call('HMGET', settings, unpack(names, i, math.min(#names, i + 999)))) do
      if text and string.find(text, '"capacity":', 1, true) then return true end
    end
  end
  return false
end
