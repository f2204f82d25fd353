-- The control hash of a queue's limit. That of a shared limit is named as in src/limits/limit-keys.ts; if the queue's
-- prefix has a hash tag, it lies in the queue's hash slot.
local function queue_limit_control(l, base)
  if not l.shared then return base .. 'meta:limit:' .. l.name end
  local tag = string.match(l.prefix or base, '{([^}]+)}')
  if tag then return (l.prefix or '{' .. tag .. '}') .. ':limit:' .. l.name end
  return (l.prefix or 'sluice') .. ':limit:{' .. l.name .. '}'
end

return queue_limit_control
