local as_text = {}

-- A microsecond timestamp as text: tostring() and .. keep only 14 digits of a number. '%d' takes half as long.
function as_text.us(us)
  return string.format(us % 1 == 0 and '%d' or '%.0f', us)
end

-- A number as text that reads back as the same number.
function as_text.exact(number)
  return string.format(number % 1 == 0 and math.abs(number) < 1e15 and '%d' or '%.17g', number)
end

return as_text
