-- Whether groups have bounds of their own, by the defaults or as set for one of these, or might refuse a job for its
-- cost. groups: the defaults (JSON); cost: the highest of the jobs
local function group_bounds(base, groups, names, cost)
  if string.find(groups, '"capacity":', 1, true) or string.find(groups, '"share":', 1, true) then return true end
  local burst = tonumber(string.match(groups, '"burst":(%d+)')) or 1
  if cost > burst and string.find(groups, '"rate":', 1, true) then return true end
  local settings = base .. 'meta:groups:settings'
  if redis.call('EXISTS', settings) == 0 then return false end
  local fields = cost > 1 and { '"capacity":', '"rate":', '"burst":' } or { '"capacity":' }
  -- Lua has room for some thousand.
  for i = 1, #names, 1000 do
    for _, text in ipairs(redis.call('HMGET', settings, unpack(names, i, math.min(#names, i + 999)))) do
      for _, field in ipairs(text and fields or {}) do
        if string.find(text, field, 1, true) then return true end
      end
    end
  end
  return false
end
