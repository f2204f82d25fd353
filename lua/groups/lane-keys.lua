-- What the name of a lane (groups/lanes) says of its jobs. Kept between calls: names are longer than what is needed.
--   keys            name -> value, nil for none
--   cells, cells_of the cells of its jobs, and under which limits (groups/limits-of)

-- At most this many lanes are kept.
local MOST = 1000
local known, count = {}, 0

local function parsed(lane)
  local keys, name, at = nil, nil, 1
  while true do
    local length, from = string.match(lane, '^(%d+):()', at)
    -- Behind the keys come units.
    if not length then return { keys = keys } end
    local text = string.sub(lane, from, from + length - 1)
    if at > 1 and not name then
      name = text
    elseif name then
      keys = keys or {}
      keys[name], name = text, nil
    end
    at = from + length
  end
end

local function lane_keys(lane)
  local entry = known[lane]
  if entry then return entry end
  if count == MOST then known, count = {}, 0 end
  entry, count = parsed(lane), count + 1
  known[lane] = entry
  return entry
end

return lane_keys
